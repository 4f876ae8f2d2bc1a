"""Element types and reductions, by the numbers of ringpipe.h."""

import enum


class DataType(enum.IntEnum):
    """What the elements of an array are."""

    FLOAT32 = 1
    FLOAT64 = 2
    INT32 = 3
    INT64 = 4
    INT8 = 5
    UINT8 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT16 = 9
    BFLOAT16 = 10


class Op(enum.IntEnum):
    """How a call makes one value of those of all ranks.

    A logical value is uint8 with MAX (or) and MIN (and).
    """

    SUM = 0
    MIN = 1
    MAX = 2
    PROD = 3
    AVERAGE = 4


class Collective(enum.IntEnum):
    """ringpipe_collective."""

    ALL_REDUCE = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    BROADCAST = 4
    BARRIER = 5
    REDUCE = 6
    GATHER = 7
    SCATTER = 8
    ALL_TO_ALL = 9
