/* An independent count: a preloaded library, compiled with the mpi.h of an MPI, that counts calls by their names
 * MPI_... and writes `name count` lines to COUNT_DIR/rank-N.count at MPI_Finalize. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

struct count { const char *name; long calls; struct count *next; };
static struct count *first;

#define COUNTED(NAME, PARAMETERS, ...) \
    int MPI_##NAME PARAMETERS { \
        static struct count count = {"MPI_" #NAME, 0, NULL}; \
        if (!__atomic_fetch_add(&count.calls, 1, __ATOMIC_RELAXED)) { \
            count.next = __atomic_load_n(&first, __ATOMIC_RELAXED); \
            while (!__atomic_compare_exchange_n(&first, &count.next, &count, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)); \
        } \
        return PMPI_##NAME(__VA_ARGS__); \
    }
#define S const void *a, int n, MPI_Datatype t, int to, int tag, MPI_Comm c
#define R void *a, int n, MPI_Datatype t, int from, int tag, MPI_Comm c
#define Q MPI_Request *q
#define TWO const void *a, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u
COUNTED(Init, (int *a, char ***b), a, b)
COUNTED(Init_thread, (int *a, char ***b, int r, int *p), a, b, r, p)
COUNTED(Send, (S), a, n, t, to, tag, c)
COUNTED(Bsend, (S), a, n, t, to, tag, c)
COUNTED(Ssend, (S), a, n, t, to, tag, c)
COUNTED(Rsend, (S), a, n, t, to, tag, c)
COUNTED(Recv, (R, MPI_Status *s), a, n, t, from, tag, c, s)
COUNTED(Isend, (S, Q), a, n, t, to, tag, c, q)
COUNTED(Issend, (S, Q), a, n, t, to, tag, c, q)
COUNTED(Irsend, (S, Q), a, n, t, to, tag, c, q)
COUNTED(Irecv, (R, Q), a, n, t, from, tag, c, q)
COUNTED(Recv_init, (R, Q), a, n, t, from, tag, c, q)
COUNTED(Startall, (int n, MPI_Request q[]), n, q)
COUNTED(Sendrecv, (const void *a, int n, MPI_Datatype t, int to, int tag, void *b, int m, MPI_Datatype u, int from,
    int v, MPI_Comm c, MPI_Status *s), a, n, t, to, tag, b, m, u, from, v, c, s)
COUNTED(Probe, (int f, int t, MPI_Comm c, MPI_Status *s), f, t, c, s)
COUNTED(Iprobe, (int f, int t, MPI_Comm c, int *g, MPI_Status *s), f, t, c, g, s)
COUNTED(Wait, (Q, MPI_Status *s), q, s)
COUNTED(Waitall, (int n, MPI_Request q[], MPI_Status s[]), n, q, s)
COUNTED(Waitany, (int n, MPI_Request q[], int *i, MPI_Status *s), n, q, i, s)
COUNTED(Waitsome, (int n, MPI_Request q[], int *o, int i[], MPI_Status s[]), n, q, o, i, s)
COUNTED(Test, (Q, int *f, MPI_Status *s), q, f, s)
COUNTED(Testall, (int n, MPI_Request q[], int *f, MPI_Status s[]), n, q, f, s)
COUNTED(Testany, (int n, MPI_Request q[], int *i, int *f, MPI_Status *s), n, q, i, f, s)
COUNTED(Cancel, (Q), q)
COUNTED(Request_free, (Q), q)
COUNTED(Barrier, (MPI_Comm c), c)
COUNTED(Bcast, (void *a, int n, MPI_Datatype t, int r, MPI_Comm c), a, n, t, r, c)
COUNTED(Gather, (TWO, int r, MPI_Comm c), a, n, t, b, m, u, r, c)
COUNTED(Scatter, (TWO, int r, MPI_Comm c), a, n, t, b, m, u, r, c)
COUNTED(Allgather, (TWO, MPI_Comm c), a, n, t, b, m, u, c)
COUNTED(Alltoall, (TWO, MPI_Comm c), a, n, t, b, m, u, c)
COUNTED(Gatherv, (const void *a, int n, MPI_Datatype t, void *b, const int m[], const int d[], MPI_Datatype u, int r,
    MPI_Comm c), a, n, t, b, m, d, u, r, c)
COUNTED(Scatterv, (const void *a, const int n[], const int d[], MPI_Datatype t, void *b, int m, MPI_Datatype u, int r,
    MPI_Comm c), a, n, d, t, b, m, u, r, c)
COUNTED(Allgatherv, (const void *a, int n, MPI_Datatype t, void *b, const int m[], const int d[], MPI_Datatype u,
    MPI_Comm c), a, n, t, b, m, d, u, c)
COUNTED(Alltoallv, (const void *a, const int n[], const int d[], MPI_Datatype t, void *b, const int m[], const int e[],
    MPI_Datatype u, MPI_Comm c), a, n, d, t, b, m, e, u, c)
COUNTED(Reduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, int r, MPI_Comm c), a, b, n, t, o, r, c)
COUNTED(Allreduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), a, b, n, t, o, c)
COUNTED(Scan, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), a, b, n, t, o, c)
COUNTED(Reduce_scatter, (const void *a, void *b, const int n[], MPI_Datatype t, MPI_Op o, MPI_Comm c), a, b, n, t, o, c)
COUNTED(Comm_dup, (MPI_Comm c, MPI_Comm *d), c, d)
COUNTED(Comm_split, (MPI_Comm c, int k, int l, MPI_Comm *d), c, k, l, d)
COUNTED(Comm_create, (MPI_Comm c, MPI_Group g, MPI_Comm *d), c, g, d)
COUNTED(Comm_free, (MPI_Comm *c), c)
COUNTED(Cart_create, (MPI_Comm c, int n, const int d[], const int p[], int r, MPI_Comm *e), c, n, d, p, r, e)
#define T MPI_Datatype t, MPI_Datatype *u
COUNTED(Type_contiguous, (int n, T), n, t, u)
COUNTED(Type_vector, (int n, int b, int s, T), n, b, s, t, u)
COUNTED(Type_create_hvector, (int n, int b, MPI_Aint s, T), n, b, s, t, u)
COUNTED(Type_indexed, (int n, const int b[], const int d[], T), n, b, d, t, u)
COUNTED(Type_create_hindexed, (int n, const int b[], const MPI_Aint d[], T), n, b, d, t, u)
COUNTED(Type_create_indexed_block, (int n, int b, const int d[], T), n, b, d, t, u)
COUNTED(Type_create_struct, (int n, const int b[], const MPI_Aint d[], const MPI_Datatype t[], MPI_Datatype *u), n, b, d,
    t, u)
COUNTED(Type_create_subarray, (int n, const int s[], const int p[], const int f[], int o, T), n, s, p, f, o, t, u)
COUNTED(Type_create_resized, (MPI_Datatype t, MPI_Aint l, MPI_Aint e, MPI_Datatype *u), t, l, e, u)
COUNTED(Type_dup, (T), t, u)
COUNTED(Type_commit, (MPI_Datatype *t), t)
COUNTED(Type_free, (MPI_Datatype *t), t)
COUNTED(Pack, (const void *a, int n, MPI_Datatype t, void *b, int m, int *p, MPI_Comm c), a, n, t, b, m, p, c)
COUNTED(Unpack, (const void *a, int m, int *p, void *b, int n, MPI_Datatype t, MPI_Comm c), a, m, p, b, n, t, c)
COUNTED(Buffer_attach, (void *a, int n), a, n)
COUNTED(Alloc_mem, (MPI_Aint n, MPI_Info i, void *p), n, i, p)
COUNTED(Free_mem, (void *p), p)
COUNTED(Dims_create, (int n, int d, int s[]), n, d, s)

int MPI_Finalize(void) {
    char path[4096];
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/rank-%d.count", getenv("COUNT_DIR"), rank);
    FILE *file = fopen(path, "w");
    for (struct count *count = first; count; count = count->next) fprintf(file, "%s %ld\n", count->name, count->calls);
    fprintf(file, "MPI_Finalize 1\n");
    fclose(file);
    return PMPI_Finalize();
}
