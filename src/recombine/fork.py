"""Keeps file handles private to this process: a forked child has /dev/null in their place.

A user's code may fork, and the child may outlive this process. A lock or a pipe that it inherited would then look
as if this process were still there. (What is started by `exec` does not get them: Python opens files that way.)
"""

import os

_private: set[int] = set()


def keep_private(handle: int) -> None:
    """Hide this open file from every process that is forked from now on."""
    _private.add(handle)


def close_private(handle: int) -> None:
    _private.discard(handle)  # first: its number may be another file's as soon as it is closed
    os.close(handle)


def _forget() -> None:
    """Hide the files, in the child. They are not closed: other files would get the numbers, which objects still use."""
    if not _private:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in _private:
        os.dup2(nothing, handle, inheritable=False)
    os.close(nothing)
    _private.clear()


os.register_at_fork(after_in_child=_forget)
