/* Calls every function that the collector wraps, on 4 ranks, and writes down what it did. */
#include "log.h"

#define W MPI_COMM_WORLD
static int rank, size, next, prev, a[64], b[64];
static MPI_Request q, qs[8];
static MPI_Status st, sts[8];

static void wait_done(int id) {
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", id);
}

static void barrier(MPI_Comm comm) {
    MPI_Barrier(comm);
    L("MPI_Barrier c=%s\n", mem(comm));
}

/* A receive is posted, then the send under test is made. */
#define BLOCKING(NAME, TAG) do { \
    MPI_Irecv(b, 8, MPI_INT, prev, TAG, W, &q); \
    L("MPI_Irecv c=%s p=%d t=%d b=32 q=%d\n", mem(W), prev, TAG, next_request++); \
    barrier(W); \
    MPI_##NAME(a, 5, MPI_INT, next, TAG, W); \
    L("MPI_" #NAME " c=%s p=%d t=%d b=20\n", mem(W), next, TAG); \
    MPI_Wait(&q, &st); \
    L("MPI_Wait R=%d:done:%s\n", next_request - 1, got(&st)); \
} while (0)

#define NONBLOCKING(NAME, RECV, TAG) do { \
    MPI_##RECV(b, 8, MPI_INT, prev, TAG, W, &qs[0]); \
    L("MPI_" #RECV " c=%s p=%d t=%d b=32 q=%d\n", mem(W), prev, TAG, next_request++); \
    barrier(W); \
    MPI_##NAME(a, 5, MPI_INT, next, TAG, W, &qs[1]); \
    L("MPI_" #NAME " c=%s p=%d t=%d b=20 q=%d\n", mem(W), next, TAG, next_request++); \
    MPI_Waitall(2, qs, MPI_STATUSES_IGNORE); \
    L("MPI_Waitall R=%d:done:%d/%d/20,%d:done\n", next_request - 2, prev, TAG, next_request - 1); \
} while (0)

#define PERSISTENT(SEND, RECV, TAG) do { \
    int id = next_request; \
    next_request += 2; \
    MPI_##RECV(b, 5, MPI_INT, prev, TAG, W, &qs[0]); \
    L("MPI_" #RECV " c=%s p=%d t=%d b=20 q=%d\n", mem(W), prev, TAG, id); \
    MPI_##SEND(a, 5, MPI_INT, next, TAG, W, &qs[1]); \
    L("MPI_" #SEND " c=%s p=%d t=%d b=20 q=%d\n", mem(W), next, TAG, id + 1); \
    for (int round = 0; round < 2; round++) { \
        MPI_Start(&qs[0]); \
        L("MPI_Start R=%d:started\n", id); \
        barrier(W); \
        MPI_Startall(1, &qs[1]); \
        L("MPI_Startall R=%d:started\n", id + 1); \
        MPI_Waitall(2, qs, sts); \
        L("MPI_Waitall R=%d:done:%s,%d:done\n", id, got(&sts[0]), id + 1); \
    } \
    MPI_Wait(&qs[0], &st); /* inactive: nothing to report */ \
    L("MPI_Wait\n"); \
    MPI_Request_free(&qs[0]); \
    L("MPI_Request_free R=%d:freed\n", id); \
    MPI_Request_free(&qs[1]); \
    L("MPI_Request_free R=%d:freed\n", id + 1); \
} while (0)

static void point_to_point(void) {
    int space;
    MPI_Pack_size(64, MPI_INT, W, &space);
    space += 8 * MPI_BSEND_OVERHEAD;
    void *attached = malloc(space);
    MPI_Buffer_attach(attached, space);
    L("MPI_Buffer_attach b=%d\n", space);
    BLOCKING(Send, 1);
    BLOCKING(Bsend, 2);
    BLOCKING(Ssend, 3);
    BLOCKING(Rsend, 4);
    NONBLOCKING(Isend, Irecv, 5);
    NONBLOCKING(Ibsend, Irecv, 6);
    NONBLOCKING(Issend, Irecv, 7);
    NONBLOCKING(Irsend, Irecv, 8);
    PERSISTENT(Send_init, Recv_init, 9);
    PERSISTENT(Bsend_init, Recv_init, 10);
    PERSISTENT(Ssend_init, Recv_init, 11);
    PERSISTENT(Rsend_init, Recv_init, 12);
#if MPI_VERSION >= 4
    BLOCKING(Send_c, 1);
    BLOCKING(Bsend_c, 2);
    BLOCKING(Ssend_c, 3);
    BLOCKING(Rsend_c, 4);
    NONBLOCKING(Isend_c, Irecv_c, 5);
    NONBLOCKING(Ibsend_c, Irecv_c, 6);
    NONBLOCKING(Issend_c, Irecv_c, 7);
    NONBLOCKING(Irsend_c, Irecv_c, 8);
    PERSISTENT(Send_init_c, Recv_init_c, 9);
    PERSISTENT(Bsend_init_c, Recv_init_c, 10);
    PERSISTENT(Ssend_init_c, Recv_init_c, 11);
    PERSISTENT(Rsend_init_c, Recv_init_c, 12);
#endif
    MPI_Buffer_detach(&attached, &space);
    L("MPI_Buffer_detach\n");
#if MPI_VERSION >= 4
    MPI_Count room;
    MPI_Buffer_attach_c(attached, space);
    L("MPI_Buffer_attach_c b=%d\n", space);
    MPI_Buffer_detach_c(&attached, &room);
    L("MPI_Buffer_detach_c\n");
#endif
    free(attached);

#define RECEIVE(NAME) do { \
    MPI_Isend(a, 3, MPI_DOUBLE, next, 20, W, &q); \
    L("MPI_Isend c=%s p=%d t=20 b=24 q=%d\n", mem(W), next, next_request++); \
    MPI_##NAME(b, 8, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, W, &st); \
    L("MPI_" #NAME " c=%s p=-1 t=-1 b=64 g=%s\n", mem(W), got(&st)); \
    wait_done(next_request - 1); \
    MPI_Isend(a, 3, MPI_DOUBLE, next, 21, W, &q); \
    L("MPI_Isend c=%s p=%d t=21 b=24 q=%d\n", mem(W), next, next_request++); \
    MPI_##NAME(b, 8, MPI_DOUBLE, MPI_ANY_SOURCE, 21, W, MPI_STATUS_IGNORE); \
    L("MPI_" #NAME " c=%s p=-1 t=21 b=64 g=%d/21/24\n", mem(W), prev); \
    wait_done(next_request - 1); \
} while (0)
    RECEIVE(Recv);
    barrier(W);
#define EXCHANGE(BOTH, REPLACE) do { \
    MPI_##BOTH(a, 4, MPI_INT, next, 30, b, 9, MPI_INT, prev, MPI_ANY_TAG, W, &st); \
    L("MPI_" #BOTH " c=%s p=%d t=30 b=16 s=%d u=-1 r=36 g=%s\n", mem(W), next, prev, got(&st)); \
    MPI_##REPLACE(a, 4, MPI_INT, next, 31, MPI_ANY_SOURCE, 31, W, MPI_STATUS_IGNORE); \
    L("MPI_" #REPLACE " c=%s p=%d t=31 b=16 s=-1 u=31 r=16 g=%d/31/16\n", mem(W), next, prev); \
    MPI_##BOTH(a, 4, MPI_INT, MPI_PROC_NULL, 30, b, 9, MPI_INT, MPI_PROC_NULL, 30, W, &st); \
    L("MPI_" #BOTH " c=%s p=-2 t=30 b=16 s=-2 u=30 r=36 g=%s\n", mem(W), got(&st)); \
} while (0)
    EXCHANGE(Sendrecv, Sendrecv_replace);
#if MPI_VERSION >= 4
    RECEIVE(Recv_c);
    barrier(W);
    EXCHANGE(Sendrecv_c, Sendrecv_replace_c);
#define EXCHANGE_LATER(BOTH, REPLACE) do { \
    MPI_##BOTH(a, 4, MPI_INT, next, 32, b, 9, MPI_INT, prev, 32, W, &q); \
    L("MPI_" #BOTH " c=%s p=%d t=32 b=16 s=%d u=32 r=36 q=%d\n", mem(W), next, prev, next_request++); \
    MPI_Wait(&q, MPI_STATUS_IGNORE); \
    L("MPI_Wait R=%d:done\n", next_request - 1); \
    MPI_##REPLACE(a, 4, MPI_INT, next, 33, prev, 33, W, &q); \
    L("MPI_" #REPLACE " c=%s p=%d t=33 b=16 s=%d u=33 r=16 q=%d\n", mem(W), next, prev, next_request++); \
    MPI_Wait(&q, &st); \
    L("MPI_Wait R=%d:done\n", next_request - 1); \
} while (0)
    EXCHANGE_LATER(Isendrecv, Isendrecv_replace);
    EXCHANGE_LATER(Isendrecv_c, Isendrecv_replace_c);
#endif

    /* Probes. */
    MPI_Message message;
    int flag = 1;
    MPI_Iprobe(MPI_ANY_SOURCE, 99, W, &flag, MPI_STATUS_IGNORE);
    L("MPI_Iprobe c=%s p=-1 t=99 f=0\n", mem(W));
    MPI_Improbe(MPI_ANY_SOURCE, 99, W, &flag, &message, &st);
    L("MPI_Improbe c=%s p=-1 t=99 f=0\n", mem(W));
#define SEND_FOR_PROBE(TAG) do { \
    MPI_Isend(a, 6, MPI_INT, next, TAG, W, &q); \
    L("MPI_Isend c=%s p=%d t=%d b=24 q=%d\n", mem(W), next, TAG, next_request++); \
} while (0)
    SEND_FOR_PROBE(40);
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, W, MPI_STATUS_IGNORE);
    L("MPI_Probe c=%s p=-1 t=-1 g=%d/40/24\n", mem(W), prev);
    do {
        MPI_Iprobe(prev, 40, W, &flag, &st);
        L("MPI_Iprobe c=%s p=%d t=40 f=%d", mem(W), prev, flag);
        flag ? L(" g=%s\n", got(&st)) : L("\n");
    } while (!flag);
    MPI_Mprobe(prev, MPI_ANY_TAG, W, &message, &st);
    L("MPI_Mprobe c=%s p=%d t=-1 g=%s\n", mem(W), prev, got(&st));
    MPI_Mrecv(b, 8, MPI_INT, &message, MPI_STATUS_IGNORE);
    L("MPI_Mrecv c=%s p=%d t=40 b=32 g=%d/40/24\n", mem(W), prev, prev);
    wait_done(next_request - 1);
    SEND_FOR_PROBE(41);
    int sent = next_request - 1;
    MPI_Request sending = q;
    do {
        MPI_Improbe(MPI_ANY_SOURCE, 41, W, &flag, &message, MPI_STATUS_IGNORE);
        L("MPI_Improbe c=%s p=-1 t=41 f=%d", mem(W), flag);
        flag ? L(" g=%d/41/24\n", prev) : L("\n");
    } while (!flag);
    MPI_Imrecv(b, 8, MPI_INT, &message, &q);
    L("MPI_Imrecv c=%s p=%d t=41 b=32 q=%d\n", mem(W), prev, next_request++);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done:%d/41/24\n", next_request - 1, prev);
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", sent);
#if MPI_VERSION >= 4
    SEND_FOR_PROBE(42);
    MPI_Mprobe(prev, 42, W, &message, &st);
    L("MPI_Mprobe c=%s p=%d t=42 g=%s\n", mem(W), prev, got(&st));
    MPI_Mrecv_c(b, 8, MPI_INT, &message, &st);
    L("MPI_Mrecv_c c=%s p=%d t=42 b=32 g=%s\n", mem(W), prev, got(&st));
    wait_done(next_request - 1);
    SEND_FOR_PROBE(43);
    sending = q;
    sent = next_request - 1;
    MPI_Mprobe(prev, 43, W, &message, &st);
    L("MPI_Mprobe c=%s p=%d t=43 g=%s\n", mem(W), prev, got(&st));
    MPI_Imrecv_c(b, 8, MPI_INT, &message, &q);
    L("MPI_Imrecv_c c=%s p=%d t=43 b=32 q=%d\n", mem(W), prev, next_request++);
    MPI_Wait(&q, &st);
    L("MPI_Wait R=%d:done:%s\n", next_request - 1, got(&st));
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", sent);
#endif
    /* A message from nowhere. */
    MPI_Mprobe(MPI_PROC_NULL, 1, W, &message, &st);
    L("MPI_Mprobe c=%s p=-2 t=1 g=%s\n", mem(W), got(&st));
    MPI_Mrecv(b, 1, MPI_INT, &message, &st);
    L("MPI_Mrecv p=-2 b=4 g=%s\n", got(&st));
}

/* Posts four receives (tags 50..53) and sends to oneself in the order given. */
static int posted;
static void post_four(void) {
    posted = next_request;
    for (int i = 0; i < 4; i++) {
        MPI_Irecv(b + i, 2, MPI_INT, MPI_ANY_SOURCE, 50 + i, MPI_COMM_SELF, &qs[i]);
        L("MPI_Irecv c=%d p=-1 t=%d b=8 q=%d\n", rank, 50 + i, next_request++);
    }
}
static void send_self(int tag) {
    MPI_Send(a, 1, MPI_INT, 0, tag, MPI_COMM_SELF);
    L("MPI_Send c=%d p=0 t=%d b=4\n", rank, tag);
}
/* The list of the four requests with one state a letter: d done, p pending, - gone before. */
static char *states(const char *letters) {
    static char text[256];
    char *at = text;
    *at = 0;
    for (int i = 0; i < 4; i++) {
        if (letters[i] == '-') continue;
        at += sprintf(at, "%s%d:%s", at == text ? "" : ",", posted + i, letters[i] == 'd' ? "done" : "pending");
        if (letters[i] == 'd') at += sprintf(at, ":0/%d/4", 50 + i);
    }
    return text;
}

static void requests(void) {
    int flag, index, count, indices[4];
    char state[5];
    post_four();
    MPI_Test(&qs[0], &flag, MPI_STATUS_IGNORE);
    L("MPI_Test f=0 R=%d:pending\n", posted);
    MPI_Testall(4, qs, &flag, MPI_STATUSES_IGNORE);
    L("MPI_Testall f=0 R=%s\n", states("pppp"));
    MPI_Testany(4, qs, &index, &flag, MPI_STATUS_IGNORE);
    L("MPI_Testany f=0 R=%s\n", states("pppp"));
    MPI_Testsome(4, qs, &count, indices, MPI_STATUSES_IGNORE);
    L("MPI_Testsome R=%s\n", states("pppp"));
    MPI_Request_get_status(qs[2], &flag, &st);
    L("MPI_Request_get_status f=0 R=%d:pending\n", posted + 2);
    send_self(52);
    do {
        MPI_Request_get_status(qs[2], &flag, MPI_STATUS_IGNORE);
        L("MPI_Request_get_status f=%d R=%d:%s\n", flag, posted + 2, flag ? "ready:0/52/4" : "pending");
    } while (!flag);
    MPI_Waitany(4, qs, &index, MPI_STATUS_IGNORE);
    L("MPI_Waitany R=%s\n", states("ppdp"));
    send_self(50);
    do {
        MPI_Test(&qs[0], &flag, MPI_STATUS_IGNORE);
        L("MPI_Test f=%d R=%d:%s\n", flag, posted, flag ? "done:0/50/4" : "pending");
    } while (!flag);
    send_self(53);
    MPI_Waitsome(4, qs, &count, indices, MPI_STATUSES_IGNORE);
    L("MPI_Waitsome R=%s\n", states("-p-d"));
    send_self(51);
    do {
        MPI_Testsome(4, qs, &count, indices, sts);
        L("MPI_Testsome R=%s\n", states(count == 1 ? "-d--" : "-p--"));
    } while (count != 1);
    MPI_Waitany(4, qs, &index, MPI_STATUS_IGNORE);
    L("MPI_Waitany\n");
    MPI_Waitall(4, qs, MPI_STATUSES_IGNORE);
    L("MPI_Waitall\n");
    MPI_Testall(4, qs, &flag, MPI_STATUSES_IGNORE);
    L("MPI_Testall f=1\n");

    post_four();
    for (int i = 3; i >= 0; i--) send_self(50 + i);
    for (int left = 4; left > 0; left--) {
        if (left == 4) strcpy(state, "pppp");
        do {
            MPI_Testany(4, qs, &index, &flag, &st);
            if (flag) state[index] = 'd';
            L("MPI_Testany f=%d R=%s\n", flag, states(state));
        } while (!flag);
        state[index] = '-';
    }
    post_four();
    for (int i = 3; i >= 0; i--) send_self(50 + i);
    do {
        MPI_Testall(4, qs, &flag, MPI_STATUSES_IGNORE);
        L("MPI_Testall f=%d R=%s\n", flag, states(flag ? "dddd" : "pppp"));
    } while (!flag);

    /* Cancelled and freed. */
    MPI_Irecv(b, 1, MPI_INT, 0, 60, MPI_COMM_SELF, &q);
    L("MPI_Irecv c=%d p=0 t=60 b=4 q=%d\n", rank, next_request++);
    MPI_Cancel(&q);
    L("MPI_Cancel R=%d:cancel\n", next_request - 1);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:cancelled\n", next_request - 1);
    MPI_Isend(a, 1, MPI_INT, MPI_PROC_NULL, 61, W, &q);
    L("MPI_Isend c=%s p=-2 t=61 b=4 q=%d\n", mem(W), next_request++);
    MPI_Request_free(&q);
    L("MPI_Request_free R=%d:freed\n", next_request - 1);

    /* Sends that are complete at once may share a handle; they are waited for in another order. */
    int first = next_request;
    for (int i = 0; i < 4; i++) {
        MPI_Isend(a, 1, MPI_INT, MPI_PROC_NULL, 62 + i, W, &qs[i]);
        L("MPI_Isend c=%s p=-2 t=%d b=4 q=%d\n", mem(W), 62 + i, next_request++);
    }
    MPI_Wait(&qs[2], MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", first + 2);
    MPI_Wait(&qs[1], MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done\n", first + 1);
    MPI_Waitall(4, qs, MPI_STATUSES_IGNORE);
    L("MPI_Waitall R=%d:done,%d:done\n", first, first + 3);

    /* More than fit one record, in an order that leaves no runs. */
    enum { MANY = 1200 };
    static MPI_Request many[MANY];
    first = next_request;
    for (int i = 0; i < MANY; i++) {
        int at = i % 2 ? MANY - 1 - i / 2 : i / 2;
        MPI_Irecv(b, 1, MPI_INT, 0, 100 + i, MPI_COMM_SELF, &many[at]);
        L("MPI_Irecv c=%d p=0 t=%d b=4 q=%d\n", rank, 100 + i, next_request++);
    }
    for (int i = 0; i < MANY; i++) send_self(100 + i);
    MPI_Waitall(MANY, many, MPI_STATUSES_IGNORE);
    L("MPI_Waitall R=");
    for (int at = 0; at < MANY; at++) {
        int i = at < MANY / 2 ? 2 * at : 2 * (MANY - 1 - at) + 1;
        L("%s%d:done:0/%d/4", at ? "," : "", first + i, 100 + i);
    }
    L("\n");
}

#define NOW(NAME, ...) do { \
    MPI_##NAME(__VA_ARGS__); \
    L("MPI_" #NAME " %s\n", fld); \
} while (0)
#define LATER(NAME, ...) do { \
    MPI_##NAME(__VA_ARGS__, &q); \
    L("MPI_" #NAME " %s q=%d\n", fld, next_request++); \
    wait_done(next_request - 1); \
} while (0)
#define AGAIN(NAME, ...) do { \
    int id = next_request++; \
    MPI_##NAME(__VA_ARGS__, MPI_INFO_NULL, &q); \
    L("MPI_" #NAME " %s q=%d\n", fld, id); \
    MPI_Start(&q); \
    L("MPI_Start R=%d:started\n", id); \
    wait_done(id); \
    MPI_Request_free(&q); \
    L("MPI_Request_free R=%d:freed\n", id); \
} while (0)
#if MPI_VERSION >= 4
#define SMALL(NAME, INAME, ...) do { \
    NOW(NAME, __VA_ARGS__); LATER(INAME, __VA_ARGS__); AGAIN(NAME##_init, __VA_ARGS__); } while (0)
#define LARGE(NAME, INAME, ...) do { \
    NOW(NAME##_c, __VA_ARGS__); LATER(INAME##_c, __VA_ARGS__); AGAIN(NAME##_init_c, __VA_ARGS__); } while (0)
#else
#define SMALL(NAME, INAME, ...) do { NOW(NAME, __VA_ARGS__); LATER(INAME, __VA_ARGS__); } while (0)
#define LARGE(NAME, INAME, ...) do { } while (0)
#endif
#define BOTH(NAME, INAME, ...) do { \
    SMALL(NAME, INAME, __VA_ARGS__); LARGE(NAME, INAME, __VA_ARGS__); } while (0)

static void collectives(MPI_Comm comm) {
    int r, n;
    MPI_Comm_rank(comm, &r);
    MPI_Comm_size(comm, &n);
    const char *c = strdup(mem(comm));
    int root = n - 1, is_root = r == root;
    /* Every peer gets one more than the one before, everything in ints. */
    int counts[16], places[16], own[16], zero[16] = {0};
    MPI_Datatype types[16];
    MPI_Count large_counts[16], large_own[16];
    MPI_Aint large_places[16], large_zero[16] = {0};
    char list[256] = "", ones[256] = "";
    int total = 0;
    for (int i = 0; i < n; i++) {
        counts[i] = i + 1;
        own[i] = r + 1;
        places[i] = total;
        large_counts[i] = counts[i];
        large_own[i] = own[i];
        large_places[i] = total;
        types[i] = MPI_INT;
        total += counts[i];
        sprintf(list + strlen(list), "%s%d", i ? "," : "", 4 * counts[i]);
        sprintf(ones + strlen(ones), "%s%d", i ? "," : "", 4 * own[i]);
    }
    static int s[256], d[256];
    F("c=%s", c);
    MPI_Barrier(comm);
    L("MPI_Barrier %s\n", fld);
    MPI_Ibarrier(comm, &q);
    L("MPI_Ibarrier %s q=%d\n", fld, next_request++);
    wait_done(next_request - 1);
#if MPI_VERSION >= 4
    AGAIN(Barrier_init, comm);
#endif
    F("c=%s p=%d b=12", c, root);
    BOTH(Bcast, Ibcast, s, 3, MPI_INT, root, comm);
    F("c=%s p=%d b=8 r=%d", c, root, is_root ? 8 : 0);
    BOTH(Gather, Igather, s, 2, MPI_INT, d, is_root ? 2 : -5, is_root ? MPI_INT : MPI_DATATYPE_NULL, root, comm);
    F("c=%s p=%d b=8 r=%d", c, root, is_root ? 8 : 0);
    BOTH(Gather, Igather, is_root ? MPI_IN_PLACE : s, 2, MPI_INT, d, 2, MPI_INT, root, comm);
    F("c=%s p=%d b=%d r=8", c, root, is_root ? 8 : 0);
    BOTH(Scatter, Iscatter, s, is_root ? 2 : -5, is_root ? MPI_INT : MPI_DATATYPE_NULL, d, 2, MPI_INT, root, comm);
    F("c=%s p=%d b=%d r=8", c, root, is_root ? 8 : 0);
    BOTH(Scatter, Iscatter, s, 2, MPI_INT, is_root ? MPI_IN_PLACE : d, 2, MPI_INT, root, comm);
    F("c=%s p=%d b=%d r=%d%s%s", c, root, 4 * (r + 1), is_root ? 4 * total : 0, is_root ? " G=" : "", is_root ? list : "");
    SMALL(Gatherv, Igatherv, s, r + 1, MPI_INT, d, is_root ? counts : NULL, is_root ? places : NULL, MPI_INT, root, comm);
    LARGE(Gatherv, Igatherv, s, r + 1, MPI_INT, d, is_root ? large_counts : NULL, is_root ? large_places : NULL, MPI_INT, root, comm);
    F("c=%s p=%d b=%d r=%d%s%s", c, root, is_root ? 4 * total : 0, 4 * (r + 1), is_root ? " S=" : "", is_root ? list : "");
    SMALL(Scatterv, Iscatterv, s, is_root ? counts : NULL, is_root ? places : NULL, MPI_INT, d, r + 1, MPI_INT, root, comm);
    LARGE(Scatterv, Iscatterv, s, is_root ? large_counts : NULL, is_root ? large_places : NULL, MPI_INT, d, r + 1, MPI_INT, root, comm);
    F("c=%s b=12 r=12", c);
    BOTH(Allgather, Iallgather, s, 3, MPI_INT, d, 3, MPI_INT, comm);
    F("c=%s b=12 r=12", c);
    BOTH(Allgather, Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, d, 3, MPI_INT, comm);
    F("c=%s b=%d r=%d G=%s", c, 4 * (r + 1), 4 * total, list);
    SMALL(Allgatherv, Iallgatherv, s, r + 1, MPI_INT, d, counts, places, MPI_INT, comm);
    LARGE(Allgatherv, Iallgatherv, s, r + 1, MPI_INT, d, large_counts, large_places, MPI_INT, comm);
    F("c=%s b=%d r=%d G=%s", c, 4 * (r + 1), 4 * total, list);
    SMALL(Allgatherv, Iallgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, d, counts, places, MPI_INT, comm);
    F("c=%s b=8 r=8", c);
    BOTH(Alltoall, Ialltoall, s, 2, MPI_INT, d, 1, MPI_LONG, comm);
    F("c=%s b=%d r=%d S=%s G=%s", c, 4 * total, 4 * n * (r + 1), list, ones);
    SMALL(Alltoallv, Ialltoallv, s, counts, places, MPI_INT, d, own, zero, MPI_INT, comm);
    LARGE(Alltoallv, Ialltoallv, s, large_counts, large_places, MPI_INT, d, large_own, large_zero, MPI_INT, comm);
    SMALL(Alltoallw, Ialltoallw, s, counts, zero, types, d, own, zero, types, comm);
    LARGE(Alltoallw, Ialltoallw, s, large_counts, large_zero, types, d, large_own, large_zero, types, comm);
    F("c=%s b=%d r=%d G=%s", c, 4 * n * (r + 1), 4 * n * (r + 1), ones);
    if (n == 1) SMALL(Alltoallv, Ialltoallv, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, d, own, zero, MPI_INT, comm);
    F("c=%s p=%d b=12 op=Max", c, root);
    BOTH(Reduce, Ireduce, s, d, 3, MPI_INT, MPI_MAX, root, comm);
    F("c=%s b=16 op=Prod", c);
    BOTH(Allreduce, Iallreduce, s, d, 2, MPI_DOUBLE, MPI_PROD, comm);
    BOTH(Allreduce, Iallreduce, MPI_IN_PLACE, d, 2, MPI_DOUBLE, MPI_PROD, comm);
    F("c=%s b=%d r=%d op=Bxor G=%s", c, 4 * total, 4 * (r + 1), list);
    SMALL(Reduce_scatter, Ireduce_scatter, s, d, counts, MPI_INT, MPI_BXOR, comm);
    LARGE(Reduce_scatter, Ireduce_scatter, s, d, large_counts, MPI_INT, MPI_BXOR, comm);
    F("c=%s b=8 op=Min", c);
    BOTH(Reduce_scatter_block, Ireduce_scatter_block, s, d, 2, MPI_INT, MPI_MIN, comm);
    F("c=%s b=8 op=Land", c);
    BOTH(Scan, Iscan, s, d, 2, MPI_INT, MPI_LAND, comm);
    F("c=%s b=16 op=Minloc", c);
    BOTH(Exscan, Iexscan, s, d, 2, MPI_2INT, MPI_MINLOC, comm);
}

/* On a topology where everyone has `ins` sources and `outs` destinations. */
static void neighbors(MPI_Comm comm, int ins, int outs) {
    static int s[256], d[256];
    int counts[16], places[16], got_counts[16];
    MPI_Count large_counts[16], large_got[16];
    MPI_Aint large_places[16];
    MPI_Datatype types[16];
    char sent[256] = "", received[256] = "";
    const char *c = strdup(mem(comm));
    for (int i = 0; i < 16; i++) {
        large_counts[i] = counts[i] = 2;
        large_got[i] = got_counts[i] = 2;
        large_places[i] = places[i] = 0;
        types[i] = MPI_INT;
    }
    for (int i = 0; i < outs; i++) sprintf(sent + strlen(sent), "%s8", i ? "," : "");
    for (int i = 0; i < ins; i++) sprintf(received + strlen(received), "%s8", i ? "," : "");
    F("c=%s b=8 r=8", c);
    BOTH(Neighbor_allgather, Ineighbor_allgather, s, 2, MPI_INT, d, 2, MPI_INT, comm);
    BOTH(Neighbor_alltoall, Ineighbor_alltoall, s, 2, MPI_INT, d, 2, MPI_INT, comm);
    F("c=%s b=8 r=%d G=%s", c, 8 * ins, received);
    SMALL(Neighbor_allgatherv, Ineighbor_allgatherv, s, 2, MPI_INT, d, got_counts, places, MPI_INT, comm);
    LARGE(Neighbor_allgatherv, Ineighbor_allgatherv, s, 2, MPI_INT, d, large_got, large_places, MPI_INT, comm);
    F("c=%s b=%d r=%d S=%s G=%s", c, 8 * outs, 8 * ins, sent, received);
    SMALL(Neighbor_alltoallv, Ineighbor_alltoallv, s, counts, places, MPI_INT, d, got_counts, places, MPI_INT, comm);
    LARGE(Neighbor_alltoallv, Ineighbor_alltoallv, s, large_counts, large_places, MPI_INT, d, large_got, large_places, MPI_INT, comm);
    SMALL(Neighbor_alltoallw, Ineighbor_alltoallw, s, counts, large_places, types, d, got_counts, large_places, types, comm);
    LARGE(Neighbor_alltoallw, Ineighbor_alltoallw, s, large_counts, large_places, types, d, large_got, large_places, types, comm);
}

static void free_comm(MPI_Comm *comm) {
    char text[256];
    strcpy(text, mem(*comm));
    MPI_Comm_free(comm);
    L("MPI_Comm_free c=%s\n", text);
}

static void communicators(void) {
    MPI_Comm comm, other, inter, merged, local;
    MPI_Group all, some;
    const char *w = strdup(mem(W));
    MPI_Comm_dup(W, &comm);
    L("MPI_Comm_dup c=%s n=%s\n", w, mem(comm));
    barrier(comm);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Comm_set_info(comm, info);
    L("MPI_Comm_set_info c=%s\n", w);
    MPI_Info_free(&info);
    free_comm(&comm);
    MPI_Comm_dup_with_info(W, MPI_INFO_NULL, &comm);
    L("MPI_Comm_dup_with_info c=%s n=%s\n", w, mem(comm));
    MPI_Comm_idup(comm, &other, &q);
    L("MPI_Comm_idup c=%s q=%d\n", w, next_request++);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done n=%s\n", next_request - 1, mem(other));
    barrier(other);
    free_comm(&other);
#if MPI_VERSION >= 4
    MPI_Comm_idup_with_info(comm, MPI_INFO_NULL, &other, &q);
    L("MPI_Comm_idup_with_info c=%s q=%d\n", w, next_request++);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:done n=%s\n", next_request - 1, mem(other));
    free_comm(&other);
#endif
    char text[256];
    strcpy(text, mem(comm));
    MPI_Comm_disconnect(&comm);
    L("MPI_Comm_disconnect c=%s\n", text);

    /* Reversed order; and nothing for rank 0. */
    MPI_Comm_split(W, 0, -rank, &comm);
    L("MPI_Comm_split c=%s n=%s\n", w, mem(comm));
    collectives(comm);
    free_comm(&comm);
    MPI_Comm_split(W, rank == 0 ? MPI_UNDEFINED : 1, 0, &comm);
    if (comm == MPI_COMM_NULL) L("MPI_Comm_split c=%s\n", w);
    else {
        L("MPI_Comm_split c=%s n=%s\n", w, mem(comm));
        barrier(comm);
        free_comm(&comm);
    }
    MPI_Comm_split_type(W, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    L("MPI_Comm_split_type c=%s n=%s\n", w, mem(comm));
    free_comm(&comm);
    MPI_Comm_group(W, &all);
    int picked[] = {2, 0};
    MPI_Group_incl(all, 2, picked, &some);
    MPI_Comm_create(W, some, &comm);
    if (comm == MPI_COMM_NULL) L("MPI_Comm_create c=%s\n", w);
    else {
        L("MPI_Comm_create c=%s n=%s\n", w, mem(comm));
        free_comm(&comm);
    }
    if (rank % 2 == 0) {
        MPI_Comm_create_group(W, some, 7, &comm);
        L("MPI_Comm_create_group c=%s t=7 n=%s\n", w, mem(comm));
        collectives(comm);
        free_comm(&comm);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&all);

    /* Two groups. */
    MPI_Comm_split(W, rank % 2, 0, &local);
    L("MPI_Comm_split c=%s n=%s\n", w, mem(local));
    MPI_Intercomm_create(local, 0, W, 1 - rank % 2, 8, &inter);
    L("MPI_Intercomm_create c=%s t=8 n=%s\n", mem(local), mem(inter));
    int peer = rank / 2;
    MPI_Sendrecv(a, 1, MPI_INT, peer, 1, b, 1, MPI_INT, peer, 1, inter, &st);
    L("MPI_Sendrecv c=%s p=%d t=1 b=4 s=%d u=1 r=4 g=%s\n", mem(inter), peer, peer, got(&st));
    int root = rank % 2 == 1 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Bcast(a, 2, MPI_INT, root, inter);
    L("MPI_Bcast c=%s p=%d b=%d\n", mem(inter), canonical(root), rank == 2 ? 0 : 8);
    MPI_Gather(a, 2, MPI_INT, b, 2, MPI_INT, root, inter);
    L("MPI_Gather c=%s p=%d b=%d r=%d\n", mem(inter), canonical(root), rank % 2 ? 8 : 0, rank == 0 ? 8 : 0);
    MPI_Scatter(a, 2, MPI_INT, b, 2, MPI_INT, root, inter);
    L("MPI_Scatter c=%s p=%d b=%d r=%d\n", mem(inter), canonical(root), rank == 0 ? 8 : 0, rank % 2 ? 8 : 0);
    int counts[] = {1, 2}, places[] = {0, 1};
    MPI_Allgatherv(a, rank / 2 + 1, MPI_INT, b, counts, places, MPI_INT, inter);
    L("MPI_Allgatherv c=%s b=%d r=12 G=4,8\n", mem(inter), 4 * (rank / 2 + 1));
    MPI_Intercomm_merge(inter, rank % 2, &merged);
    L("MPI_Intercomm_merge c=%s n=%s\n", mem(inter), mem(merged));
    barrier(merged);
    free_comm(&merged);
    free_comm(&inter);
    free_comm(&local);

    /* Topologies. */
    int dims[] = {2, 2}, periods[] = {1, 0}, remain[] = {1, 0}, place;
    MPI_Cart_map(W, 2, dims, periods, &place);
    L("MPI_Cart_map c=%s\n", w);
    MPI_Cart_create(W, 2, dims, periods, 0, &comm);
    L("MPI_Cart_create c=%s n=%s\n", w, mem(comm));
    neighbors(comm, 4, 4);
    MPI_Cart_sub(comm, remain, &other);
    L("MPI_Cart_sub c=%s n=%s\n", w, mem(other));
    free_comm(&other);
    free_comm(&comm);
    int index[] = {2, 4, 6, 8}, edges[] = {1, 3, 0, 2, 1, 3, 0, 2};
    MPI_Graph_map(W, 4, index, edges, &place);
    L("MPI_Graph_map c=%s\n", w);
    MPI_Graph_create(W, 4, index, edges, 0, &comm);
    L("MPI_Graph_create c=%s n=%s\n", w, mem(comm));
    neighbors(comm, 2, 2);
    free_comm(&comm);
    int degree = 1, to[] = {next};
    MPI_Dist_graph_create(W, 1, &rank, &degree, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    L("MPI_Dist_graph_create c=%s n=%s\n", w, mem(comm));
    neighbors(comm, 1, 1);
    free_comm(&comm);
    int from[] = {prev, rank}, out[] = {next, rank};
    MPI_Dist_graph_create_adjacent(W, 2, from, MPI_UNWEIGHTED, 2, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    L("MPI_Dist_graph_create_adjacent c=%s n=%s\n", w, mem(comm));
    neighbors(comm, 2, 2);
    free_comm(&comm);
}

/* A message of the new type to nobody shows whether the collector knows its size. */
static void use_type(MPI_Datatype type, int made) {
    int bytes;
    if (made) {
        MPI_Type_commit(&type);
        L("MPI_Type_commit\n");
    }
    MPI_Type_size(type, &bytes);
    MPI_Send(a, 2, type, MPI_PROC_NULL, 9, W);
    L("MPI_Send c=%s p=-2 t=9 b=%d\n", mem(W), 2 * bytes);
    if (made) {
        MPI_Type_free(&type);
        L("MPI_Type_free\n");
    }
}

#define TYPE(NAME, ...) do { \
    MPI_Type_##NAME(__VA_ARGS__, &type); \
    L("MPI_Type_" #NAME "\n"); \
    use_type(type, 1); \
} while (0)

static void datatypes(void) {
    MPI_Datatype type;
    /* A freed type's handle comes back with another size. */
    for (int i = 1; i <= 4; i++) TYPE(contiguous, i, MPI_DOUBLE);
    int lengths[] = {1, 2}, places[] = {0, 4};
    MPI_Aint steps[] = {0, 32};
    TYPE(vector, 3, 1, 4, MPI_INT);
    TYPE(create_hvector, 3, 2, 16, MPI_INT);
    TYPE(indexed, 2, lengths, places, MPI_INT);
    TYPE(create_hindexed, 2, lengths, steps, MPI_INT);
    TYPE(create_indexed_block, 2, 3, places, MPI_INT);
    TYPE(create_hindexed_block, 2, 3, steps, MPI_INT);
    TYPE(create_resized, MPI_INT, 0, 64);
    TYPE(dup, MPI_DOUBLE);
#ifndef STANDARD_MPI_H /* the library of the tests does not translate lists of types and orders of dimensions */
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE};
    int sizes[] = {4, 6}, parts[] = {2, 3}, starts[] = {1, 1};
    int distributions[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
    int blocks[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[] = {2, 1};
    TYPE(create_struct, 2, lengths, steps, types);
    TYPE(create_subarray, 2, sizes, parts, starts, MPI_ORDER_C, MPI_INT);
    TYPE(create_darray, 2, rank % 2, 2, sizes, distributions, blocks, grid, MPI_ORDER_C, MPI_INT);
#endif
    MPI_Type_create_f90_integer(9, &type);
    L("MPI_Type_create_f90_integer\n");
    use_type(type, 0);
    MPI_Type_create_f90_real(6, 30, &type);
    L("MPI_Type_create_f90_real\n");
    use_type(type, 0);
    MPI_Type_create_f90_complex(6, 30, &type);
    L("MPI_Type_create_f90_complex\n");
    use_type(type, 0);
    char packed[256];
    int at = 0, end = 0;
    MPI_Aint at_byte = 0, end_byte = 0;
    F("c=%s b=12", mem(W));
    NOW(Pack, a, 3, MPI_INT, packed, 256, &at, W);
    NOW(Unpack, packed, at, &end, b, 3, MPI_INT, W);
    F("b=16");
    NOW(Pack_external, "external32", a, 2, MPI_DOUBLE, packed, 256, &at_byte);
    NOW(Unpack_external, "external32", packed, at_byte, &end_byte, b, 2, MPI_DOUBLE);
#if MPI_VERSION >= 4
    MPI_Count large_lengths[] = {1, 2}, large_places[] = {0, 4}, large_steps[] = {0, 32}, from = 0, to = 0;
    TYPE(contiguous_c, 5, MPI_DOUBLE);
    TYPE(vector_c, 3, 1, 4, MPI_INT);
    TYPE(create_hvector_c, 3, 2, 16, MPI_INT);
    TYPE(indexed_c, 2, large_lengths, large_places, MPI_INT);
    TYPE(create_hindexed_c, 2, large_lengths, large_steps, MPI_INT);
    TYPE(create_indexed_block_c, 2, 3, large_places, MPI_INT);
    TYPE(create_hindexed_block_c, 2, 3, large_steps, MPI_INT);
    TYPE(create_resized_c, MPI_INT, 0, 64);
#ifndef STANDARD_MPI_H
    MPI_Count large_sizes[] = {4, 6}, large_parts[] = {2, 3}, large_starts[] = {1, 1};
    TYPE(create_struct_c, 2, large_lengths, large_steps, types);
    TYPE(create_subarray_c, 2, large_sizes, large_parts, large_starts, MPI_ORDER_C, MPI_INT);
    TYPE(create_darray_c, 2, rank % 2, 2, large_sizes, distributions, blocks, grid, MPI_ORDER_C, MPI_INT);
#endif
    F("c=%s b=12", mem(W));
    NOW(Pack_c, a, 3, MPI_INT, packed, 256, &from, W);
    NOW(Unpack_c, packed, from, &to, b, 3, MPI_INT, W);
    F("b=16");
    from = to = 0;
    NOW(Pack_external_c, "external32", a, 2, MPI_DOUBLE, packed, 256, &from);
    NOW(Unpack_external_c, "external32", packed, from, &to, b, 2, MPI_DOUBLE);
#endif
}

/* What no other rank meets. */
static void local(void) {
    void *memory;
    int dims[2] = {0, 0};
    MPI_Alloc_mem(128, MPI_INFO_NULL, &memory);
    L("MPI_Alloc_mem b=128\n");
    MPI_Free_mem(memory);
    L("MPI_Free_mem\n");
    MPI_Reduce_local(a, b, 4, MPI_INT, MPI_MAX);
    L("MPI_Reduce_local b=16 op=Max\n");
#if MPI_VERSION >= 4
    MPI_Reduce_local_c(a, b, 4, MPI_INT, MPI_MAX);
    L("MPI_Reduce_local_c b=16 op=Max\n");
#endif
    MPI_Dims_create(12, 2, dims);
    L("MPI_Dims_create\n");
}

/* Names of ports; libraries that cannot do it say so. */
static void names(void) {
    char port[MPI_MAX_PORT_NAME] = "none", found[MPI_MAX_PORT_NAME];
    char service[64];
    sprintf(service, "service-%d", rank);
    MPI_Errhandler fatal;
    MPI_Comm_get_errhandler(W, &fatal);
    MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
#define TRY(NAME, ...) L("MPI_" #NAME "%s\n", MPI_##NAME(__VA_ARGS__) == MPI_SUCCESS ? "" : " e=1")
    TRY(Open_port, MPI_INFO_NULL, port);
    TRY(Publish_name, service, MPI_INFO_NULL, port);
    TRY(Lookup_name, service, MPI_INFO_NULL, found);
    TRY(Unpublish_name, service, MPI_INFO_NULL, port);
    TRY(Close_port, port);
    MPI_Comm_set_errhandler(W, fatal);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, fatal);
    MPI_Errhandler_free(&fatal);
}

#ifndef STANDARD_MPI_H /* the library of the tests does not translate callbacks */
static int end_of_ours(void *cancelled, MPI_Status *status) {
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, *(int *)cancelled);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}
static int free_ours(void *cancelled) { return MPI_SUCCESS; }
static int cancel_ours(void *cancelled, int complete) {
    *(int *)cancelled = 1;
    return MPI_SUCCESS;
}

static void start_ours(int *cancelled, MPI_Request *request) {
    *cancelled = 0;
    MPI_Grequest_start(end_of_ours, free_ours, cancel_ours, cancelled, request);
    L("MPI_Grequest_start q=%d\n", next_request++);
}

static void complete_ours(MPI_Request request) {
    MPI_Grequest_complete(request);
    L("MPI_Grequest_complete\n");
}

/* Requests that the program itself completes, alone and among others. */
static void generalized(void) {
    int cancelled, flag, id;
    for (int round = 0; round < 3; round++) {
        id = next_request;
        start_ours(&cancelled, &q);
        MPI_Test(&q, &flag, MPI_STATUS_IGNORE);
        L("MPI_Test f=0 R=%d:pending\n", id);
        complete_ours(q);
        wait_done(id);
        /* A request of the library may get its handle. */
        MPI_Irecv(b, 1, MPI_INT, 0, 70, MPI_COMM_SELF, &q);
        L("MPI_Irecv c=%d p=0 t=70 b=4 q=%d\n", rank, next_request++);
        send_self(70);
        MPI_Wait(&q, &st);
        L("MPI_Wait R=%d:done:%s\n", next_request - 1, got(&st));
    }
    id = next_request;
    MPI_Irecv(b, 2, MPI_INT, MPI_ANY_SOURCE, 71, MPI_COMM_SELF, &qs[0]);
    L("MPI_Irecv c=%d p=-1 t=71 b=8 q=%d\n", rank, next_request++);
    start_ours(&cancelled, &qs[1]);
    MPI_Irecv(b, 2, MPI_INT, 0, 72, MPI_COMM_SELF, &qs[2]);
    L("MPI_Irecv c=%d p=0 t=72 b=8 q=%d\n", rank, next_request++);
    complete_ours(qs[1]);
    int index;
    MPI_Waitany(3, qs, &index, MPI_STATUS_IGNORE);
    L("MPI_Waitany R=%d:pending,%d:done,%d:pending\n", id, id + 1, id + 2);
    start_ours(&cancelled, &qs[1]);
    send_self(71);
    send_self(72);
    complete_ours(qs[1]);
    MPI_Waitall(3, qs, MPI_STATUSES_IGNORE);
    L("MPI_Waitall R=%d:done:0/71/4,%d:done,%d:done:0/72/4\n", id, id + 3, id + 2);
    id = next_request;
    start_ours(&cancelled, &q);
    MPI_Cancel(&q);
    L("MPI_Cancel R=%d:cancel\n", id);
    complete_ours(q);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    L("MPI_Wait R=%d:cancelled\n", id);
    id = next_request;
    start_ours(&cancelled, &q);
    complete_ours(q);
    MPI_Request_free(&q);
    L("MPI_Request_free R=%d:freed\n", id);
}
#endif

static void one_sided(void) {
    MPI_Win win;
    static double memory[64];
    double *base, x[8] = {0}, y[8] = {0};
    const char *w = strdup(mem(W));
    MPI_Group all, some;
#define FREE_WIN() do { MPI_Win_free(&win); L("MPI_Win_free w=%s\n", w); } while (0)
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, W, &win);
    L("MPI_Win_create c=%s b=512\n", w);
    MPI_Win_fence(0, win);
    L("MPI_Win_fence w=%s\n", w);
#define OPERATIONS(X) do { \
    MPI_Put##X(x, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, win); \
    L("MPI_Put" #X " w=%s p=%d b=24\n", w, next); \
    MPI_Get##X(y, 2, MPI_DOUBLE, next, 8, 2, MPI_DOUBLE, win); \
    L("MPI_Get" #X " w=%s p=%d b=16\n", w, next); \
    MPI_Accumulate##X(x, 4, MPI_DOUBLE, next, 16, 4, MPI_DOUBLE, MPI_SUM, win); \
    L("MPI_Accumulate" #X " w=%s p=%d b=32 op=Sum\n", w, next); \
    MPI_Get_accumulate##X(x, 1, MPI_DOUBLE, y, 1, MPI_DOUBLE, next, 24, 1, MPI_DOUBLE, MPI_REPLACE, win); \
    L("MPI_Get_accumulate" #X " w=%s p=%d b=8 r=8 op=Replace\n", w, next); \
} while (0)
    OPERATIONS();
    MPI_Win_fence(0, win);
    L("MPI_Win_fence w=%s\n", w);
#if MPI_VERSION >= 4
    OPERATIONS(_c);
    MPI_Win_fence(0, win);
    L("MPI_Win_fence w=%s\n", w);
#endif
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    L("MPI_Win_lock w=%s p=%d\n", w, next);
    MPI_Fetch_and_op(x, y, MPI_DOUBLE, next, 32, MPI_NO_OP, win);
    L("MPI_Fetch_and_op w=%s p=%d b=8 op=NoOp\n", w, next);
    long c = 0, o = 1, res;
    MPI_Compare_and_swap(&o, &c, &res, MPI_LONG, next, 33, win);
    L("MPI_Compare_and_swap w=%s p=%d b=8\n", w, next);
    MPI_Win_flush(next, win);
    L("MPI_Win_flush w=%s p=%d\n", w, next);
    MPI_Win_flush_local(next, win);
    L("MPI_Win_flush_local w=%s p=%d\n", w, next);
    MPI_Win_unlock(next, win);
    L("MPI_Win_unlock w=%s p=%d\n", w, next);
    MPI_Win_lock_all(0, win);
    L("MPI_Win_lock_all w=%s\n", w);
#define WITH_REQUEST(X) do { \
    F("w=%s p=%d b=24", w, next); \
    LATER(Rput##X, x, 3, MPI_DOUBLE, next, 0, 3, MPI_DOUBLE, win); \
    LATER(Rget##X, y, 3, MPI_DOUBLE, next, 8, 3, MPI_DOUBLE, win); \
    F("w=%s p=%d b=24 op=Sum", w, next); \
    LATER(Raccumulate##X, x, 3, MPI_DOUBLE, next, 16, 3, MPI_DOUBLE, MPI_SUM, win); \
    F("w=%s p=%d b=24 r=24 op=Sum", w, next); \
    LATER(Rget_accumulate##X, x, 3, MPI_DOUBLE, y, 3, MPI_DOUBLE, next, 16, 3, MPI_DOUBLE, MPI_SUM, win); \
} while (0)
    WITH_REQUEST();
#if MPI_VERSION >= 4
    WITH_REQUEST(_c);
#endif
    MPI_Win_flush_all(win);
    L("MPI_Win_flush_all w=%s\n", w);
    MPI_Win_flush_local_all(win);
    L("MPI_Win_flush_local_all w=%s\n", w);
    MPI_Win_sync(win);
    L("MPI_Win_sync w=%s\n", w);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Win_set_info(win, info);
    L("MPI_Win_set_info w=%s\n", w);
    MPI_Info_free(&info);
    MPI_Win_unlock_all(win);
    L("MPI_Win_unlock_all w=%s\n", w);
    /* Post, start, complete, wait, test. */
    MPI_Comm_group(W, &all);
    for (int test = 0; test < 2; test++) {
        int flag = 0;
        MPI_Group_incl(all, 1, &prev, &some);
        MPI_Win_post(some, 0, win);
        L("MPI_Win_post w=%s\n", w);
        MPI_Group_free(&some);
        MPI_Group_incl(all, 1, &next, &some);
        MPI_Win_start(some, 0, win);
        L("MPI_Win_start w=%s\n", w);
        MPI_Group_free(&some);
        MPI_Put(x, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, win);
        L("MPI_Put w=%s p=%d b=8\n", w, next);
        MPI_Win_complete(win);
        L("MPI_Win_complete w=%s\n", w);
        if (test) while (!flag) {
            MPI_Win_test(win, &flag);
            L("MPI_Win_test w=%s f=%d\n", w, flag);
        } else {
            MPI_Win_wait(win);
            L("MPI_Win_wait w=%s\n", w);
        }
    }
    MPI_Group_free(&all);
    FREE_WIN();
    MPI_Win_allocate(256, 8, MPI_INFO_NULL, W, &base, &win);
    L("MPI_Win_allocate c=%s b=256\n", w);
    FREE_WIN();
    MPI_Win_allocate_shared(128, 8, MPI_INFO_NULL, W, &base, &win);
    L("MPI_Win_allocate_shared c=%s b=128\n", w);
    MPI_Aint bytes;
    int unit;
    MPI_Win_shared_query(win, next, &bytes, &unit, &base);
    L("MPI_Win_shared_query w=%s p=%d\n", w, next);
    FREE_WIN();
    MPI_Win_create_dynamic(MPI_INFO_NULL, W, &win);
    L("MPI_Win_create_dynamic c=%s\n", w);
    MPI_Win_attach(win, memory, 64);
    L("MPI_Win_attach w=%s b=64\n", w);
    MPI_Win_detach(win, memory);
    L("MPI_Win_detach w=%s\n", w);
    FREE_WIN();
#if MPI_VERSION >= 4
    MPI_Win_create_c(memory, sizeof memory, 8, MPI_INFO_NULL, W, &win);
    L("MPI_Win_create_c c=%s b=512\n", w);
    FREE_WIN();
    MPI_Win_allocate_c(256, 8, MPI_INFO_NULL, W, &base, &win);
    L("MPI_Win_allocate_c c=%s b=256\n", w);
    FREE_WIN();
    MPI_Win_allocate_shared_c(128, 8, MPI_INFO_NULL, W, &base, &win);
    L("MPI_Win_allocate_shared_c c=%s b=128\n", w);
    MPI_Aint large_unit;
    MPI_Win_shared_query_c(win, prev, &bytes, &large_unit, &base);
    L("MPI_Win_shared_query_c w=%s p=%d\n", w, prev);
    FREE_WIN();
#endif
}

static void files(void) {
    MPI_File file;
    char path[4096];
    snprintf(path, sizeof path, "%s/data", getenv("LOG_DIR"));
    MPI_File_open(W, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    L("MPI_File_open c=%s\n", mem(W));
    int at = 64 * rank;
    MPI_Offset position;
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    L("MPI_File_set_view\n");
    MPI_File_set_size(file, 0);
    L("MPI_File_set_size\n");
    MPI_File_preallocate(file, 4096);
    L("MPI_File_preallocate\n");
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_File_set_info(file, info);
    MPI_Info_free(&info);
    L("MPI_File_set_info\n");
    MPI_File_set_atomicity(file, 0);
    L("MPI_File_set_atomicity\n");
    MPI_File_get_position_shared(file, &position);
    L("MPI_File_get_position_shared\n");
    F("b=16");
#define FILE_CALLS(X) do { \
    NOW(File_write##X, file, a, 4, MPI_INT, &st); \
    NOW(File_write_all##X, file, a, 4, MPI_INT, &st); \
    NOW(File_write_at##X, file, at, a, 4, MPI_INT, MPI_STATUS_IGNORE); \
    NOW(File_write_at_all##X, file, at, a, 4, MPI_INT, &st); \
    NOW(File_write_shared##X, file, a, 4, MPI_INT, &st); \
    NOW(File_write_ordered##X, file, a, 4, MPI_INT, &st); \
    MPI_File_seek(file, 0, MPI_SEEK_SET); \
    L("MPI_File_seek\n"); \
    NOW(File_read##X, file, b, 4, MPI_INT, &st); \
    NOW(File_read_all##X, file, b, 4, MPI_INT, &st); \
    NOW(File_read_at##X, file, at, b, 4, MPI_INT, &st); \
    NOW(File_read_at_all##X, file, at, b, 4, MPI_INT, &st); \
    NOW(File_read_shared##X, file, b, 4, MPI_INT, &st); \
    NOW(File_read_ordered##X, file, b, 4, MPI_INT, &st); \
    LATER(File_iwrite##X, file, a, 4, MPI_INT); \
    LATER(File_iwrite_all##X, file, a, 4, MPI_INT); \
    LATER(File_iwrite_at##X, file, at, a, 4, MPI_INT); \
    LATER(File_iwrite_at_all##X, file, at, a, 4, MPI_INT); \
    LATER(File_iwrite_shared##X, file, a, 4, MPI_INT); \
    LATER(File_iread##X, file, b, 4, MPI_INT); \
    LATER(File_iread_all##X, file, b, 4, MPI_INT); \
    LATER(File_iread_at##X, file, at, b, 4, MPI_INT); \
    LATER(File_iread_at_all##X, file, at, b, 4, MPI_INT); \
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET); /* Open MPI 4.1 hangs at the end of the file */ \
    L("MPI_File_seek_shared\n"); \
    LATER(File_iread_shared##X, file, b, 4, MPI_INT); \
    MPI_File_write_all_begin##X(file, a, 4, MPI_INT); L("MPI_File_write_all_begin" #X " b=16\n"); \
    MPI_File_write_all_end(file, a, &st); L("MPI_File_write_all_end\n"); \
    MPI_File_write_at_all_begin##X(file, at, a, 4, MPI_INT); L("MPI_File_write_at_all_begin" #X " b=16\n"); \
    MPI_File_write_at_all_end(file, a, &st); L("MPI_File_write_at_all_end\n"); \
    MPI_File_write_ordered_begin##X(file, a, 4, MPI_INT); L("MPI_File_write_ordered_begin" #X " b=16\n"); \
    MPI_File_write_ordered_end(file, a, &st); L("MPI_File_write_ordered_end\n"); \
    MPI_File_read_all_begin##X(file, b, 4, MPI_INT); L("MPI_File_read_all_begin" #X " b=16\n"); \
    MPI_File_read_all_end(file, b, &st); L("MPI_File_read_all_end\n"); \
    MPI_File_read_at_all_begin##X(file, at, b, 4, MPI_INT); L("MPI_File_read_at_all_begin" #X " b=16\n"); \
    MPI_File_read_at_all_end(file, b, &st); L("MPI_File_read_at_all_end\n"); \
    MPI_File_read_ordered_begin##X(file, b, 4, MPI_INT); L("MPI_File_read_ordered_begin" #X " b=16\n"); \
    MPI_File_read_ordered_end(file, b, &st); L("MPI_File_read_ordered_end\n"); \
} while (0)
    FILE_CALLS();
#if MPI_VERSION >= 4
    FILE_CALLS(_c);
#endif
    MPI_File_sync(file);
    L("MPI_File_sync\n");
    MPI_File_close(&file);
    L("MPI_File_close\n");
    barrier(W);
    if (rank == 0) {
        MPI_File_delete(path, MPI_INFO_NULL);
        L("MPI_File_delete\n");
    }
}

static void errors(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    L("MPI_Comm_dup c=%d n=%d\n", rank, rank);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int error = MPI_Send(a, 1, MPI_INT, 77, 1, comm);
    L("MPI_Send c=%d p=77 t=1 b=4 e=%d\n", rank, error != MPI_SUCCESS);
    error = MPI_Isend(a, 1, MPI_INT, 77, 1, comm, &q);
    L("MPI_Isend c=%d p=77 t=1 b=4 e=%d\n", rank, error != MPI_SUCCESS);
    MPI_Comm_free(&comm);
    L("MPI_Comm_free c=%d\n", rank);
}

int main(int argc, char **argv) {
    int provided;
    if (argc > 1) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &rank);
    MPI_Comm_size(W, &size);
    open_log(rank);
    L(argc > 1 ? "MPI_Init_thread\n" : "MPI_Init\n");
    next = (rank + 1) % size;
    prev = (rank + size - 1) % size;
    point_to_point();
    requests();
    collectives(W);
    collectives(MPI_COMM_SELF);
    communicators();
    datatypes();
    local();
    names();
#ifndef STANDARD_MPI_H
    generalized();
#endif
    one_sided();
    files();
    errors();
    MPI_Pcontrol(1, "a region");
    L("MPI_Pcontrol\n");
    MPI_Pcontrol(-1, "a region");
    L("MPI_Pcontrol\n");
    barrier(W);
    MPI_Finalize();
    L("MPI_Finalize\n");
    fclose(lg);
    printf("rank %d: %d requests\n", rank, next_request);
    return 0;
}
