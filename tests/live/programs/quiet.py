"""No torch: a second of work, then none until a file `over` is there, with the watchdog's evidence to go where the first argument
says; the second is Python to run before."""

import os
import sys
import time

from hangdoc.watchdog import Watchdog

with Watchdog(timeout=2, directory=sys.argv[1]) as watchdog:
    exec("".join(sys.argv[2:3]))
    for n in watchdog.watch(range(30)):
        while n == 20 and not os.path.exists("over"):
            time.sleep(0.05)
        time.sleep(0.05)
print("through", flush=True)
