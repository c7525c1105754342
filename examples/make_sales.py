"""Write examples/sales.csv: a year of sales with the mess that real files have. Fixed seed: always the same bytes.

    python examples/make_sales.py [FILE]

1,200 rows of 2025: dates as 2025-03-09 and as 3/9/2025 (month first, which days above 12 show), amounts as 84.10 and
"1,234.50", some of them blank, and a byte order mark at the start.
"""

import csv
import random
import sys
from datetime import date, timedelta
from pathlib import Path

ROWS = 1200
SEED = 2025
REGIONS = ["North", "South", "East", "West"]
# Relative size of a sale by month: a slow start, a summer dip, a strong end of the year.
SEASON = [0.8, 0.85, 1.0, 1.05, 1.1, 1.0, 0.8, 0.75, 1.05, 1.2, 1.5, 1.7]


def rows() -> list[list[str]]:
    """Date, amount and region of every sale, by date."""
    random_ = random.Random(SEED)
    days = sorted(random_.randrange(365) for _ in range(ROWS))
    return [_row(date(2025, 1, 1) + timedelta(days=day), random_) for day in days]


def _row(day: date, random_: random.Random) -> list[str]:
    written = f"{day.month}/{day.day}/{day.year}" if random_.random() < 0.3 else day.isoformat()
    cents = int(random_.lognormvariate(6, 0.8) * SEASON[day.month - 1] * 100)
    if random_.random() < 0.05:
        cents = cents // 100_000 * 100_000 or 100_000  # round thousands, written without cents: "1,000"
    amount = f"{cents // 100:,}" if cents % 100_000 == 0 else f"{cents / 100:,.2f}"
    if random_.random() < 0.02:
        amount = ""
    return [written, amount, random_.choice(REGIONS)]


def main() -> None:
    """Write the file."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("sales.csv")
    with target.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["date", "amount", "region"])
        writer.writerows(rows())


if __name__ == "__main__":
    main()
