"""Locks the calling process for good: what it may read and write, use and call. Linux on x86-64 and arm64.

    files      Landlock: reading in the folders given, writing in one, running programs nowhere
    system     seccomp: see stages/score/system_calls.py; no sockets, no new processes, no signals to others
    resources  address space, CPU time, size of a file, number of open files; no core dump
    rights     no capabilities, and none to be gained; the process dies with the one that started it

Threads stay allowed; they count into the address space. What is not prevented: seeing that a file exists and how large
it is, filling the writable folder with many files until the time is up, and whatever a bug of the kernel allows.

The locked process loads this file by itself, so that only the standard library is imported.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 22, 38, 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT, PATH_BENEATH = 444, 445, 446, 1  # numbers of all machines
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION = 0x20080522

# Rights of Landlock over files: bits in the order of the kernel's header.
WRITE, READ, LIST, REMOVE_FOLDER, REMOVE_FILE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5
MAKE_FOLDER, MAKE_FILE, MAKE_LINK, REFER, TRUNCATE = 1 << 7, 1 << 8, 1 << 12, 1 << 13, 1 << 14
WORK = READ | LIST | WRITE | REMOVE_FOLDER | REMOVE_FILE | MAKE_FOLDER | MAKE_FILE | MAKE_LINK | REFER | TRUNCATE
FILE_RIGHTS = ((5, 16), (3, 15), (2, 14), (1, 13))  # from which version on there are how many
TCP, SCOPES = 3, 3  # all rights over TCP (version 4), abstract sockets and signals (version 6)


@dataclass(frozen=True)
class Bounds:
    """Of one process: seconds of CPU time, bytes of address space, bytes of each file it writes, open files."""

    cpu_seconds: int
    memory: int
    file_size: int = 16 << 20
    open_files: int = 64


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _done(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def landlock_version() -> int:
    """Of this kernel; an OSError where there is none."""
    if platform.machine() not in CAPSET:
        raise OSError(f"no lock for processors of the kind {platform.machine()}, only for {', '.join(CAPSET)}")
    return _done(_libc().syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1), "Landlock")


def lock(readable: Sequence[str], writable: str, bounds: Bounds, filter_program: bytes) -> None:
    """From here on, for good. Paths that are not there are left out; an OSError says which lock cannot be had."""
    version = landlock_version()
    limit(bounds)
    _done(_libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    _lock_files(version, readable, writable)
    _drop_capabilities()
    _filter(filter_program)


def limit(bounds: Bounds) -> None:
    """Death with the parent, and the limits on resources, alone."""
    _done(_libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "death with the parent")
    for kind, value in (
        (resource.RLIMIT_AS, bounds.memory),
        (resource.RLIMIT_CPU, bounds.cpu_seconds),
        (resource.RLIMIT_FSIZE, bounds.file_size),
        (resource.RLIMIT_NOFILE, bounds.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))


def _lock_files(version: int, readable: Sequence[str], writable: str) -> None:
    handled = (1 << next(count for since, count in FILE_RIGHTS if version >= since)) - 1
    attributes = struct.pack("QQQ", handled, TCP, SCOPES)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _done(_libc().syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0), "Landlock")
    for path in readable:
        _allow(ruleset, path, handled & (READ | LIST))
    _allow(ruleset, "/dev/null", handled & (READ | WRITE | TRUNCATE))
    _allow(ruleset, writable, handled & WORK)
    _done(_libc().syscall(LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    of_files = READ | WRITE | TRUNCATE
    rule = struct.pack("=Qi", rights if os.path.isdir(path) else rights & of_files, descriptor)
    _done(_libc().syscall(LANDLOCK_ADD, ruleset, PATH_BENEATH, rule, 0), f"Landlock, {path}")
    os.close(descriptor)


def _drop_capabilities() -> None:
    header = struct.pack("Ii", CAPABILITY_VERSION, 0)
    _done(_libc().syscall(CAPSET[platform.machine()], header, struct.pack("6I", *[0] * 6)), "capabilities")


def _filter(program: bytes) -> None:
    """Install the filter of system calls; needs no_new_privs."""
    code = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _done(_libc().prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0), "seccomp")
