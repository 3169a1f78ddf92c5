"""Calling a user's function in a child process that can be killed.

    stage ── worker.py ──socket──> supervisor.py ──fork──> executor.py
             (this process)        (no user code)          (imports and calls the function in its main thread)

The supervisor ends the executor and all it started on a time-out, on too much memory, and when the stage goes away. It
and the executor import the standard library alone (`frames`, `processes`, `log`, `verdict`), so that both start in
milliseconds; what the function imports is its own.
"""
