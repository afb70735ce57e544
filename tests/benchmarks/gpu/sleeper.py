"""Prints its process id, then waits to be ended."""

import os
import time

if __name__ == "__main__":
    print(os.getpid(), flush=True)  # noqa: T201 - for the test that started it
    time.sleep(600)
