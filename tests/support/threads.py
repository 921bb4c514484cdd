"""Python threads that start together."""

from __future__ import annotations

import threading


def run_in_threads(count, function):
    """Runs `function(i)` in `count` threads that start together; raises what any of them raised."""
    barrier = threading.Barrier(count)
    errors = []

    def body(i):
        try:
            barrier.wait()
            function(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
