"""No torch: two seconds of work, then none for six, with the watchdog's evidence to go where the first argument says; the
second is Python to run before."""

import sys
import time

from hangdoc.watchdog import Watchdog

with Watchdog(timeout=2, directory=sys.argv[1]) as dog:
    exec("".join(sys.argv[2:3]))
    for n in dog.watch(range(30)):
        time.sleep(6 if n == 20 else 0.05)
print("through", flush=True)
