"""A background thread that stays a few steps ahead."""

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetched(Generic[T]):
    """An iterator that draws from another in a thread, at most ``size`` ahead.

    Errors of the other iterator are raised here, in their turn.
    """

    def __init__(self, items: Iterator[T], size: int) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[T] | BaseException] = queue.Queue(size)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item = self._ready.get()
        if isinstance(item, BaseException):
            self._ready.put(item)  # for whoever asks again
            raise item
        return item[0]

    def stop(self) -> None:
        """Let the thread end after what it is doing; does not wait for it."""
        self._stopped.set()
        try:
            while True:  # a thread that waits for a free place finds one
                self._ready.get_nowait()
        except queue.Empty:
            pass

    def join(self) -> None:
        """Stop, and wait for the thread. (Not ``close``, which ``yield from`` calls by itself.)"""
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        try:
            for item in self._items:
                self._ready.put((item,))
                if self._stopped.is_set():
                    return
            self._ready.put(StopIteration())
        except BaseException as error:  # noqa: BLE001 - raised where the items are used
            self._ready.put(error)
