"""Regions inside of each other, in Python; one of them ends with an exception."""

from detour import region
from mpi4py import MPI

for step in range(2):
    with region("step"):
        MPI.COMM_WORLD.Barrier()
        try:
            with region("solve"):
                MPI.COMM_WORLD.Barrier()
                raise ValueError
        except ValueError:
            pass
