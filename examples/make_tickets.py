"""Write examples/tickets.csv: six weeks of support tickets, some in Chinese. Fixed seed: always the same bytes.

    python examples/make_tickets.py [FILE]

420 tickets of 2026-02-02 to 2026-03-15: six weeks from Monday to Sunday. In the last one, those about payment triple.
"""

import csv
import random
import sys
from datetime import date, timedelta
from pathlib import Path

SEED = 77
FIRST = date(2026, 2, 2)
WEEKS = [62, 65, 68, 66, 70, 89]
SUBJECTS = {
    "payment": [
        "Charged twice for one order",
        "Card declined at checkout",
        "付款后订单仍显示未支付",
        "重复扣款，请退回一笔",
    ],
    "delivery": ["Parcel not arrived", "Wrong address on label", "快递三天没有更新", "包裹破损，要求补发"],
    "account": ["Cannot sign in", "Password link expired", "收不到验证码", "如何修改手机号"],
    "product": ["Battery drains overnight", "Manual missing", "屏幕有亮点", "Size chart is wrong"],
}
PRIORITIES = ["low", "normal", "high", "urgent"]


def rows() -> list[list[str]]:
    """Every ticket, by date."""
    random_ = random.Random(SEED)
    found: list[list[str]] = []
    for week, count in enumerate(WEEKS):
        weights = [20, 30, 25, 25] if week < len(WEEKS) - 1 else [50, 28, 22, 20]
        days = sorted(random_.choices(range(7), weights=[6, 5, 5, 5, 5, 2, 2], k=count))
        for day in days:
            category = random_.choices(list(SUBJECTS), weights=weights)[0]
            weekly = FIRST + timedelta(weeks=week)
            age = len(WEEKS) - 1 - week
            status = random_.choices(["open", "pending", "closed"], weights=[2, 2, 4 + 12 * age])[0]
            priority = random_.choices(PRIORITIES, weights=[4, 9, 4, 1])[0]
            number = f"T-{1001 + len(found)}"
            made = (weekly + timedelta(days=day)).isoformat()
            found.append([number, made, category, priority, status, random_.choice(SUBJECTS[category])])
    return found


def main() -> None:
    """Write the file."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("tickets.csv")
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "created", "category", "priority", "status", "subject"])
        writer.writerows(rows())


if __name__ == "__main__":
    main()
