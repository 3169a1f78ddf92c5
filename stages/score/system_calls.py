"""The system calls that a locked process may not make, as a seccomp filter.

Refused with EPERM: new processes and programs; sockets (of any family: Landlock knows TCP only); signals to others,
also as the owner of a file that they are made, and tracing them; priorities, schedulers, processors and memory places,
which a process may set for others of its user; changing modes, owners, times and attributes of files (over which
Landlock has no say); mounts and namespaces; keys, shared memory, semaphores and queues, which lie outside the limit on
the address space and may be others'; raising limits; staying alive after the parent. Refused as unknown (ENOSYS):
clone3, whose flags no filter can read, so that the C library makes threads by clone; and all calls newer than this
table. Work queues of io_uring would pass by the filter, and are refused too.

Only the standard library is imported.
"""

import errno
import platform
import struct
from dataclasses import dataclass

NEWEST = 450  # the last system call that the table has been made for
CLONE_THREAD = 0x10000
PRCTL = (1, 62)  # death with the parent, sharing a core with another process
FCNTL = (8, 15)  # who is sent a signal about a file: F_SETOWN, F_SETOWN_EX
IOCTL = (0x40086602, 0x40046602, 0x401C5820)  # attributes of files: SETFLAGS in two forms, FSSETXATTR
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06  # instructions
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets of what a filter may load


@dataclass(frozen=True)
class Machine:
    """A processor's mark in filters and its numbers of system calls."""

    mark: int
    clone: int
    kill: int
    tgkill: int
    prlimit: int
    prctl: int
    fcntl: int
    ioctl: int
    refused: tuple[int, ...]


SHARED = (425, 426, 427, 424, 434, 438, 440, 428, 429, 430, 431, 432, 433, 442, 447, 448)
# io_uring, pidfd and process_*, new mount calls, memfd_secret
CLONE3 = 435
# fmt: off
MACHINES = {
    "x86_64": Machine(0xC000003E, clone=56, kill=62, tgkill=234, prlimit=302, prctl=157, fcntl=72, ioctl=16, refused=(
        57, 58, 59, 322,  # fork vfork execve execveat
        41, 42, 49, 50, 43, 288,  # socket connect bind listen accept accept4
        200, 129, 297,  # tkill rt_sigqueueinfo rt_tgsigqueueinfo
        101, 310, 311, 312, 298, 321, 323,  # ptrace process_vm_readv, _writev kcmp perf_event_open bpf userfaultfd
        90, 91, 268, 92, 93, 94, 260,  # chmod fchmod fchmodat chown fchown lchown fchownat
        188, 189, 190, 197, 198, 199,  # setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
        132, 235, 280, 261, 76,  # utime utimes utimensat futimesat truncate
        165, 166, 155, 161, 303, 304, 272, 308,  # mount umount2 pivot_root chroot *_handle_at unshare setns
        248, 249, 250, 319,  # add_key request_key keyctl memfd_create
        29, 30, 31, 64, 65, 66, 220,  # shmget shmat shmctl semget semop semctl semtimedop
        68, 69, 70, 71, 240, 241,  # msgget msgsnd msgrcv msgctl mq_open mq_unlink
        141, 203, 142, 144, 314, 251,  # setpriority sched_set* ioprio_set
        256, 279,  # migrate_pages move_pages
        160, 135, 300,  # setrlimit personality fanotify_init
    )),
    "aarch64": Machine(0xC00000B7, clone=220, kill=129, tgkill=131, prlimit=261, prctl=167, fcntl=25, ioctl=29,
                       refused=(
        221, 281,
        198, 203, 200, 201, 202, 242,
        130, 138, 240,
        117, 270, 271, 272, 241, 280, 282,
        52, 53, 55, 54,
        5, 6, 7, 14, 15, 16,
        88, 45,
        40, 39, 41, 51, 264, 265, 97, 268,
        217, 218, 219, 279,
        194, 196, 195, 190, 193, 191, 192,
        186, 189, 188, 187, 180, 181,
        140, 122, 118, 119, 274, 30,
        238, 239,
        164, 92, 262,
    )),
}
# fmt: on


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; jumps count the instructions to leave out."""
    return struct.pack("HBBI", code, then, otherwise, value)


def _refuse(error: int) -> bytes:
    return _step(RETURN, REFUSE | error)


def _only(number: int, argument: int, code: int, value: int) -> bytes:
    """A call is allowed only if its argument's lower half is so; the number stays loaded for all other calls."""
    return (
        _step(EQUAL, number, 0, 4)
        + _step(LOAD, ARGUMENTS + 8 * argument)
        + _step(code, value, 0, 1)
        + _step(RETURN, ALLOW)
        + _refuse(errno.EPERM)
    )


def _except(number: int, argument: int, refused: tuple[int, ...]) -> bytes:
    """A call is refused if its argument's lower half is one of these; the number stays loaded for all other calls."""
    program = _step(LOAD, ARGUMENTS + 8 * argument)
    for value in refused:
        program += _step(EQUAL, value, 0, 1) + _refuse(errno.EPERM)
    program += _step(RETURN, ALLOW)
    return _step(EQUAL, number, 0, len(program) // 8) + program


def _prlimit(number: int) -> bytes:
    """Reading limits is allowed: the new limit, a pointer, has to be null in both halves."""
    low, high = ARGUMENTS + 16, ARGUMENTS + 20
    null = _step(LOAD, low) + _step(EQUAL, 0, 0, 3) + _step(LOAD, high) + _step(EQUAL, 0, 0, 1)
    return _step(EQUAL, number, 0, 6) + null + _step(RETURN, ALLOW) + _refuse(errno.EPERM)


def filter_program(pid: int) -> bytes:
    """The filter for the process `pid`, which may signal itself; an OSError for a processor without a table."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(f"no table of system calls for {platform.machine()}, only for {', '.join(MACHINES)}")
    program = _step(LOAD, ARCHITECTURE) + _step(EQUAL, machine.mark, 1, 0) + _step(RETURN, KILL)
    program += _step(LOAD, NUMBER)
    program += _step(ABOVE, NEWEST, 0, 1) + _refuse(errno.ENOSYS)
    program += _step(EQUAL, CLONE3, 0, 1) + _refuse(errno.ENOSYS)
    for number in machine.refused + SHARED:
        program += _step(EQUAL, number, 0, 1) + _refuse(errno.EPERM)
    program += _only(machine.clone, 0, ANY_BIT, CLONE_THREAD)
    program += _only(machine.kill, 0, EQUAL, pid)
    program += _only(machine.tgkill, 0, EQUAL, pid)
    program += _except(machine.prctl, 0, PRCTL)
    program += _except(machine.fcntl, 1, FCNTL)
    program += _except(machine.ioctl, 1, IOCTL)
    return program + _prlimit(machine.prlimit) + _step(RETURN, ALLOW)
