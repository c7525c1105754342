"""Write examples/logs: three days of a small shop's logs with a story in them. Fixed seed: always the same bytes.

    python examples/make_logs.py [FOLDER]

Two services. `checkout` writes text without a zone (UTC), rotated each midnight, the oldest file packed; `payments`
writes JSON lines in the zone +02:00. On the third day, 2026-03-11, checkout 2.14.0 is deployed at 09:42:07 UTC. Its
configuration cuts the pool of database connections from 20 to 4, and as the day gets busier, more and more orders wait
for a connection in vain; payments, which asks checkout for the order, times out as well. Other errors (declined cards,
full mailboxes) come as they always did, and a harmless deploy of payments on the same morning is no cause of anything.
"""

import gzip
import io
import json
import random
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

SEED = 314
START = datetime(2026, 3, 9, tzinfo=UTC)
END = datetime(2026, 3, 11, 18, tzinfo=UTC)
DEPLOY = datetime(2026, 3, 11, 9, 42, 7, tzinfo=UTC)
ABROAD = timezone(timedelta(hours=2))
TRACE = """Traceback (most recent call last):
  File "/srv/checkout/orders.py", line 214, in place_order
    with engine.begin() as connection:
  File "/srv/checkout/db/pool.py", line 88, in checkout
    raise PoolTimeout(self.size, waited)
checkout.db.PoolTimeout: no free connection in pool 'orders' (size {size}) after {waited} ms
"""
MAILBOXES = ["ana@example.com", "li.wei@example.com", "j.ortiz@example.com", "sam@example.com"]

Entries = list[tuple[datetime, str]]


def traffic(moment: datetime) -> float:
    """How busy the shop is at an hour, from 0.3 at night to 1.6 in the late afternoon."""
    return [0.3, 0.3, 0.3, 0.3, 0.3, 0.4, 0.6, 0.8, 1, 1.1, 1.2, 1.3, 1.3, 1.3, 1.4, 1.5, 1.6, 1.6, 1.5][
        min(moment.hour, 18)
    ]


def hours() -> list[datetime]:
    """The start of every hour."""
    return [START + timedelta(hours=hour) for hour in range(int((END - START).total_seconds()) // 3600)]


def checkout(random_: random.Random) -> Entries:
    """Entries of the service `checkout`, stack traces included."""
    found: Entries = []

    def say(moment: datetime, level: str, logger: str, text: str, more: str = "") -> None:
        stamp = moment.strftime("%Y-%m-%d %H:%M:%S,") + f"{moment.microsecond // 1000:03}"
        found.append((moment, f"{stamp} {level:<5} [{logger}] {text}\n{more}"))

    def within(hour: datetime, count: float) -> list[datetime]:
        return [hour + timedelta(milliseconds=random_.randrange(3_600_000)) for _ in range(round(count))]

    for hour in hours():
        busy = traffic(hour)
        for moment in within(hour, 22 * busy):
            order, client = (
                random_.randrange(100_000, 999_999),
                f"10.2.{random_.randrange(8)}.{random_.randrange(2, 250)}",
            )
            took = random_.randrange(18, 140)
            say(moment, "INFO", "orders", f"order {order} placed for {client} in {took} ms")
        for moment in within(hour, 2 * busy):
            say(moment, "WARN", "db", f"slow query: {random_.randrange(510, 1900)} ms in list_orders")
        for moment in within(hour, random_.choice([0, 0, 1, 1, 2])):
            mailbox = random_.choice(MAILBOXES)
            say(moment, "ERROR", "mail", f"receipt to {mailbox} bounced: mailbox full")
        for moment in within(hour, waiting(hour, random_)):
            if moment > DEPLOY:
                order, waited = random_.randrange(100_000, 999_999), random_.randrange(3000, 3040)
                say(moment, "ERROR", "orders", f"order {order} failed", TRACE.format(size=4, waited=waited))
    started = datetime(2026, 3, 9, 0, 0, 3, 112000, tzinfo=UTC)
    say(started, "INFO", "main", "checkout 2.13.2 started; db.pool_size=20 db.pool_timeout_ms=3000 workers=16")
    for seconds, level, logger, text in (
        (0, "INFO", "deploy", "deploying checkout 2.14.0 (was 2.13.2), change CHG-4471 'smaller footprint'"),
        (2, "INFO", "deploy", "configuration changed: db.pool_size 20 -> 4, log.level DEBUG -> INFO"),
        (9, "INFO", "main", "checkout 2.14.0 started; db.pool_size=4 db.pool_timeout_ms=3000 workers=16"),
    ):
        say(DEPLOY + timedelta(seconds=seconds, milliseconds=311), level, logger, text)
    return sorted(found)


def waiting(hour: datetime, random_: random.Random) -> int:
    """How many orders find no connection in an hour: none before the deploy, then more with each hour."""
    since = (hour - DEPLOY.replace(minute=0, second=0)).total_seconds() / 3600
    return 0 if since < 0 else 5 + int(since * 7) + random_.randrange(4)


def payments(failed: list[datetime], random_: random.Random) -> Entries:
    """Entries of the service `payments`; it asks checkout about orders that `failed`, and waits in vain."""
    found: Entries = []

    def say(moment: datetime, level: str, message: str, **more: object) -> None:
        stamp = moment.astimezone(ABROAD).isoformat(timespec="milliseconds")
        line = {"time": stamp, "level": level, "service": "payments", "message": message, **more}
        found.append((moment, json.dumps(line) + "\n"))

    for hour in hours():
        busy = traffic(hour)
        for count, level, message in (
            (14 * busy, "info", "payment captured"),
            (random_.choice([1, 2, 2, 3]), "error", "card declined by issuer"),
        ):
            for _ in range(round(count)):
                moment = hour + timedelta(milliseconds=random_.randrange(3_600_000))
                amount = random_.randrange(500, 42_000) / 100
                say(moment, level, message, order=random_.randrange(100_000, 999_999), amount=amount)
        if random_.random() < 0.12:  # now and then, ever since
            moment = hour + timedelta(milliseconds=random_.randrange(3_600_000))
            say(moment, "error", "checkout did not answer within 5000 ms", order=random_.randrange(100_000, 999_999))
    for moment in failed:
        if random_.random() < 0.6:
            later = moment + timedelta(milliseconds=random_.randrange(1900, 2300))
            say(later, "error", "checkout did not answer within 5000 ms", order=random_.randrange(100_000, 999_999))
    say(datetime(2026, 3, 11, 7, 15, 40, tzinfo=UTC), "info", "deployed payments 5.3.1 (was 5.3.0): new receipt footer")
    return sorted(found)


def packed(text: str) -> bytes:
    """gzip without a time or name in it."""
    held = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=held, mtime=0) as file:
        file.write(text.encode())
    return held.getvalue()


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("logs")
    folder.mkdir(parents=True, exist_ok=True)
    random_ = random.Random(SEED)
    shop = checkout(random_)
    days = [""] * 3
    for moment, text in shop:
        days[(moment - START).days] += text
    paid = payments([moment for moment, text in shop if "PoolTimeout" in text], random_)
    (folder / "checkout.log.2.gz").write_bytes(packed(days[0]))
    (folder / "checkout.log.1").write_bytes(days[1].encode())
    (folder / "checkout.log").write_bytes(days[2].encode())
    (folder / "payments.jsonl").write_bytes("".join(text for moment, text in paid if moment < END).encode())


if __name__ == "__main__":
    main()
