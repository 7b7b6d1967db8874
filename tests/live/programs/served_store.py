"""A process that serves a TCPStore in which it waits for keys: `served_store.py PORT CLIENTS [hammer]`. Client N waits for the
keys `own/N` and `shared`, each in a thread. With `hammer`, more threads set, await and delete other keys without end."""

import datetime
import sys
import threading

from torch.distributed import TCPStore

FOREVER = datetime.timedelta(days=1)


def connect(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, timeout=FOREVER)


def hammer(port: int, number: int) -> None:
    store, other = connect(port), connect(port)
    for turn in range(1 << 60):
        key = f"turn/{number}/{turn}"
        waiting = threading.Thread(target=other.wait, args=([key, f"{key}/end"],))
        waiting.start()
        store.set(key, "x" * (turn % 50))
        store.set(f"{key}/end", "")
        waiting.join()
        store.delete_key(key)
        store.delete_key(f"{key}/end")


def main() -> None:
    port, clients = int(sys.argv[1]), int(sys.argv[2])
    server = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=FOREVER)
    server.set("own/first", "a value that nobody may see")
    for number in range(clients):
        store = connect(port)
        threading.Thread(target=store.wait, args=([f"own/{number}", "shared"],), daemon=True).start()
    for number in range(2 if sys.argv[3:] else 0):
        threading.Thread(target=hammer, args=(port, number), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
