"""Collective communication between the processes of a parallel job.

    import numpy, ringpipe

    def main():
        with ringpipe.Communicator() as comm:
            x = numpy.full(1000, comm.rank, numpy.float32)
            comm.allreduce(x)           # in place: the sum over all ranks
            return float(x[0])

    if __name__ == "__main__":
        print(ringpipe.spawn(main, 4))  # or start it under mpirun, srun, torchrun

`Communicator` has the calls, `Request` is a call under way, `spawn` starts ranks
without a launcher. Errors are subclasses of `RingpipeError`. docs/embedding.md
says what holds for threads, fork and failures.
"""

import sys
import sysconfig

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("ringpipe does not work in free-threaded builds of Python; use one with "
                      "the GIL, such as Debian's python3")
if sys.platform != "linux":
    raise ImportError("ringpipe needs Linux")

# pylint: disable=wrong-import-position
from ringpipe import _native, arrays, errors, exports, log  # noqa: E402

_native.initialise(errors.make, arrays.explain, log.deliver, exports.tensor, exports.cuda_array)

from ringpipe.communicator import Communicator, Store  # noqa: E402
from ringpipe.data_types import DataType, Op  # noqa: E402
from ringpipe.errors import (  # noqa: E402
    Aborted, DeviceError, InternalError, InvalidArgument, MemoryHeld, Mismatch, PeerLost,
    PermissionDenied, RankFailed, ResourceExhausted, RingpipeError, Timeout, Unavailable,
    WaitOver)
from ringpipe.launch import spawn  # noqa: E402
from ringpipe.request import Request  # noqa: E402

__version__ = _native.version()

__all__ = [
    "Aborted", "Communicator", "DataType", "DeviceError", "InternalError", "InvalidArgument",
    "MemoryHeld", "Mismatch", "Op", "PeerLost", "PermissionDenied", "RankFailed", "Request",
    "ResourceExhausted", "RingpipeError", "Store", "Timeout", "Unavailable", "WaitOver", "spawn",
]
