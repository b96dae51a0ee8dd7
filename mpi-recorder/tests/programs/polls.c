/* Tests that fail thousands of times, fast and slowly, alone and in turn, until a message to itself completes them. */
#include "log.h"
#include <time.h>

enum { MANY = 5000, MOST = 20 };

static int rank, out, in[MOST], flag, where, some, places[MOST];
static MPI_Request q[MOST], sending;
static MPI_Status sts[MOST];
static const char *what;

static void rest(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static void post(int at, int tag) {
    MPI_Irecv(&in[at], 1, MPI_INT, 0, tag, MPI_COMM_SELF, &q[at]);
    L("MPI_Irecv c=%d p=0 t=%d b=4 q=%d\n", rank, tag, next_request++);
}

static void send(int tag) {
    MPI_Isend(&out, 1, MPI_INT, 0, tag, MPI_COMM_SELF, &sending);
    L("MPI_Isend c=%d p=0 t=%d b=4 q=%d\n", rank, tag, next_request++);
}

static void sent(void) {
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", next_request - 1);
}

/* The state of `count` requests from number `first`; of them, the one at `done` has completed. */
static char *list(int first, int count, int done, int tag) {
    static char text[1024];
    char *at = text;
    for (int i = 0; i < count; i++) {
        at += sprintf(at, "%s%d:%s", i ? "," : "", first + i, i == done ? "done" : "pending");
        if (i == done) at += sprintf(at, ":0/%d/4", tag);
    }
    return text;
}

static void failed(long times) {
    while (times-- > 0) L("%s\n", what);
}

/* Makes a call MANY times that fails; then sends, and makes it until it does not. */
#define POLL(FAILS, CALL, TAG, ...) do { \
    static char line[1024]; \
    snprintf(line, sizeof line, __VA_ARGS__); \
    what = line; \
    for (int i = 0; i < MANY; i++) { \
        CALL; \
        if (!(FAILS)) { fprintf(stderr, "not expected: %s\n", what); exit(1); } \
    } \
    failed(MANY); \
    send(TAG); \
    long more = -1; \
    do { CALL; more++; } while (FAILS); \
    failed(more); \
} while (0)

static void one(MPI_Status *status) {
    int id = next_request;
    post(0, 1);
    POLL(!flag, MPI_Test(&q[0], &flag, status), 1, "MPI_Test f=0 R=%d:pending", id);
    L("MPI_Test f=1 R=%s\n", list(id, 1, 0, 1));
    sent();
}

/* One of three requests completes, or two have, and the third does. */
static void several(int kind) {
    int id = next_request;
    for (int i = 0; i < 3; i++) post(i, 2 + i);
    if (kind == 0) {
        POLL(!flag, MPI_Testany(3, q, &where, &flag, MPI_STATUS_IGNORE), 3, "MPI_Testany f=0 R=%s",
            list(id, 3, -1, 0));
        L("MPI_Testany f=1 R=%s\n", list(id, 3, where, 3));
    } else {
        POLL(!some, MPI_Testsome(3, q, &some, places, kind == 1 ? sts : MPI_STATUSES_IGNORE), 3,
            "MPI_Testsome R=%s", list(id, 3, -1, 0));
        L("MPI_Testsome R=%s\n", list(id, 3, places[0], 3));
    }
    sent();
    send(2);
    sent();
    int last = next_request;
    POLL(!flag, MPI_Testall(3, q, &flag, kind == 1 ? sts : MPI_STATUSES_IGNORE), 4,
        "MPI_Testall f=0 R=%d:pending,%d:pending", id, id + 2);
    L("MPI_Testall f=1 R=%d:done:0/2/4,%d:done:0/4/4\n", id, id + 2);
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", last);
}

/* A request is looked at, and received by another call. */
static void looked_at(void) {
    int id = next_request;
    post(0, 1);
    POLL(!flag, MPI_Request_get_status(q[0], &flag, MPI_STATUS_IGNORE), 1,
        "MPI_Request_get_status f=0 R=%d:pending", id);
    L("MPI_Request_get_status f=1 R=%d:ready:0/1/4\n", id);
    sent();
    MPI_Wait(&q[0], MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done:0/1/4\n", id);
}

static void probed(void) {
    MPI_Message message;
    POLL(!flag, MPI_Iprobe(MPI_ANY_SOURCE, 5, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE), 5,
        "MPI_Iprobe c=%d p=-1 t=5 f=0", rank);
    L("MPI_Iprobe c=%d p=-1 t=5 f=1 g=0/5/4\n", rank);
    MPI_Recv(&in[0], 1, MPI_INT, 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    L("MPI_Recv c=%d p=0 t=5 b=4 g=0/5/4\n", rank);
    sent();
    POLL(!flag, MPI_Improbe(MPI_ANY_SOURCE, 6, MPI_COMM_SELF, &flag, &message, MPI_STATUS_IGNORE), 6,
        "MPI_Improbe c=%d p=-1 t=6 f=0", rank);
    L("MPI_Improbe c=%d p=-1 t=6 f=1 g=0/6/4\n", rank);
    MPI_Mrecv(&in[0], 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    L("MPI_Mrecv c=%d p=0 t=6 b=4 g=0/6/4\n", rank);
    sent();
}

/* Requests are tested in turn; `pause` microseconds after each hundred of rounds. With `moves`, all in one variable. */
static void in_turn(int count, long pause, int moves) {
    int id = next_request, rounds = MANY / count;
    for (int i = 0; i < count; i++) post(i, 10 + i);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            MPI_Request moved = q[i];
            MPI_Test(moves ? &moved : &q[i], &flag, MPI_STATUS_IGNORE);
            if (flag) { fprintf(stderr, "not expected: a message\n"); exit(1); }
        }
        if (pause && round % 100 == 0) rest(pause);
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) L("MPI_Test f=0 R=%d:pending\n", id + i);
    for (int i = 0; i < count; i++) {
        send(10 + i);
        sent();
    }
    MPI_Waitall(count, q, MPI_STATUSES_IGNORE);
    L("MPI_Waitall R=");
    for (int i = 0; i < count; i++) L("%s%d:done:0/%d/4", i ? "," : "", id + i, 10 + i);
    L("\n");
}

/* Recording is switched off between two tests that fail, and on again. */
static void switched(void) {
    int id = next_request;
    post(0, 1);
    for (int i = 0; i < 3 * MANY; i++) {
        if (i == MANY) MPI_Pcontrol(0);
        if (i == 2 * MANY) MPI_Pcontrol(2);
        MPI_Test(&q[0], &flag, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2 * MANY; i++) {
        if (i == MANY) L("MPI_Pcontrol\nMPI_Pcontrol\n");
        L("MPI_Test f=0 R=%d:pending\n", id);
    }
    send(1);
    sent();
    MPI_Wait(&q[0], MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done:0/1/4\n", id);
}

int main(int argc, char **argv) {
    MPI_Status st;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    open_log(rank);
    setvbuf(lg, NULL, _IOFBF, 1 << 20);
    L("MPI_Init\n");
    one(MPI_STATUS_IGNORE);
    one(&st);
    for (int kind = 0; kind < 3; kind++) several(kind);
    looked_at();
    probed();
    in_turn(2, 0, 0);
    in_turn(3, 300, 0);
    in_turn(3, 0, 1);
    in_turn(16, 0, 0);
    in_turn(MOST, 0, 0);
    switched();
    MPI_Finalize();
    L("MPI_Finalize\n");
    fclose(lg);
    return 0;
}
