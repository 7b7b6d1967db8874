"""A client of a server: posts JSON again and again, or once, and counts the answers in a file.

python client.py URL JSON --count FILE [--every SECONDS] [--times N]
"""

import argparse
import itertools
import time
import urllib.request
from pathlib import Path


def main() -> None:
    """Post, read the answer, count it, wait, and again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("document")
    parser.add_argument("--count", type=Path, required=True)
    parser.add_argument("--every", type=float, default=0.1)
    parser.add_argument("--times", type=int)
    options = parser.parse_args()
    numbers = itertools.count(1) if options.times is None else range(1, options.times + 1)
    for number in numbers:
        request = urllib.request.Request(
            options.url, options.document.encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
        options.count.write_text(f"{number} {text[:200]}\n")
        time.sleep(options.every)


if __name__ == "__main__":
    main()
