"""Calls of mpi4py of several kinds, written down as log.h does."""

import os
from array import array
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
after, before = (rank + 1) % size, (rank - 1) % size
log = open(os.path.join(os.environ["LOG_DIR"], f"rank-{rank}.txt"), "w")
c = "c=" + ",".join(str(member) for member in range(size))


def line(text):
    print(text, file=log)


# Importing the module has initialised MPI.
line("MPI_Init_thread")
out, into = array("i", range(8)), array("i", [0] * 8)
request = 0
for count in range(1, 6):
    receive = world.Irecv([into, 8, MPI.INT], source=MPI.ANY_SOURCE, tag=3)
    line(f"MPI_Irecv {c} p=-1 t=3 b=32 q={request}")
    send = world.Isend([out, count, MPI.INT], dest=after, tag=3)
    line(f"MPI_Isend {c} p={after} t=3 b={4 * count} q={request + 1}")
    receive.Wait()
    line(f"MPI_Wait R={request}:done:{before}/3/{4 * count}")
    send.Wait()
    line(f"MPI_Wait R={request + 1}:done")
    request += 2
world.Sendrecv([out, 2, MPI.INT], dest=after, sendtag=4, recvbuf=[into, 2, MPI.INT], source=before, recvtag=4)
line(f"MPI_Sendrecv {c} p={after} t=4 b=8 s={before} u=4 r=8 g={before}/4/8")
world.Barrier()
line(f"MPI_Barrier {c}")
world.Bcast([out, 8, MPI.INT], root=1)
line(f"MPI_Bcast {c} p=1 b=32")
world.Allreduce([out, 8, MPI.INT], [into, 8, MPI.INT], op=MPI.SUM)
line(f"MPI_Allreduce {c} b=32 op=Sum")
half = world.Split(rank % 2, rank)
members = ",".join(str(member) for member in range(rank % 2, size, 2))
line(f"MPI_Comm_split {c} n={members}")
half.Barrier()
line(f"MPI_Barrier c={members}")
half.Free()
line(f"MPI_Comm_free c={members}")
# In one piece: ranks print at the same time.
os.write(1, f"rank {rank}: {list(into)}\n".encode())
MPI.Finalize()
line("MPI_Finalize")
log.close()
