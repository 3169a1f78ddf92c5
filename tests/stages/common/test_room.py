"""Memory that is used again, and not before what was in it is done with."""

import time
from concurrent.futures import ThreadPoolExecutor

import torch

from stages.common.room import Room


def test_the_same_memory_serves_other_shapes_and_types():
    room = Room()
    first, second = room.like(torch.empty(4, 3), 2)
    first.fill_(1)
    second.fill_(2)
    assert first.tolist() == [[1] * 3] * 4
    (other,) = room.like(torch.empty(5, dtype=torch.float64), 1)
    assert other.data_ptr() == first.data_ptr()
    assert (other.dtype, other.shape) == (torch.float64, (5,))
    assert room.like(torch.empty(100), 2)[1].shape == (100,)


def test_it_is_not_given_to_others_before_it_is_free():
    room, done = Room(), []
    with ThreadPoolExecutor(1) as beside:
        room.taken_until([beside.submit(lambda: (time.sleep(0.05), done.append(True)))])
        room.like(torch.empty(1), 1)
        assert done == [True]
