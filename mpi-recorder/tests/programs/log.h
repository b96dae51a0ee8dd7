/* The program's own account of its calls: one line a call, `MPI_Name key=value ...`, into LOG_DIR/rank-N.txt.
 * Keys: c communicator's members as world ranks (both groups with |), w the window's, p peer, t tag, b bytes,
 * s source and u its tag in an exchange, r bytes of the receive half, op, q request made, f flag,
 * g source/tag/bytes received, R requests and what became of them, S and G bytes for and from every peer,
 * n members of a new communicator, e whether the call failed.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *lg;
static int next_request;
static char fld[4096];

#define L(...) fprintf(lg, __VA_ARGS__)
#define F(...) snprintf(fld, sizeof fld, __VA_ARGS__)

static void open_log(int rank) {
    char path[4096];
    snprintf(path, sizeof path, "%s/rank-%d.txt", getenv("LOG_DIR"), rank);
    lg = fopen(path, "w");
    setvbuf(lg, NULL, _IOLBF, 0);
    if (!lg) { perror(path); exit(1); }
}

static int canonical(int rank) {
    return rank == MPI_ANY_SOURCE ? -1 : rank == MPI_PROC_NULL ? -2 : rank == MPI_ROOT ? -3 : rank;
}

static int canonical_tag(int tag) { return tag == MPI_ANY_TAG ? -1 : tag; }

static char *group_text(MPI_Group group, char *out) {
    int n, ranks[64], world[64];
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_size(group, &n);
    for (int i = 0; i < n; i++) ranks[i] = i;
    MPI_Group_translate_ranks(group, n, ranks, all, world);
    for (int i = 0; i < n; i++) out += sprintf(out, i ? ",%d" : "%d", world[i]);
    MPI_Group_free(&all);
    MPI_Group_free(&group);
    return out;
}

/* Members of a communicator. Several results can be used in one expression. */
static char *mem(MPI_Comm comm) {
    static char texts[8][256];
    static int next;
    char *text = texts[next++ % 8], *at;
    int inter;
    MPI_Group group;
    MPI_Comm_group(comm, &group);
    at = group_text(group, text);
    MPI_Comm_test_inter(comm, &inter);
    if (inter) {
        *at++ = '|';
        MPI_Comm_remote_group(comm, &group);
        group_text(group, at);
    }
    return text;
}

static char *got(MPI_Status *status) {
    static char texts[16][64];
    static int next;
    char *text = texts[next++ % 16];
    int bytes;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    sprintf(text, "%d/%d/%d", canonical(status->MPI_SOURCE), canonical_tag(status->MPI_TAG), bytes);
    return text;
}
