/* Tests that fail, with something in between or inside that has nothing to do with them. Prints how many it made, or of
 * those that can be switched off, how many at least. */
#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern void detour_region_begin(const char *) __attribute__((weak));
extern void detour_region_end(void) __attribute__((weak));

enum { MOST = 6 };

static long tests, sends;
static int rank, out, in[MOST], flag;
static MPI_Request q[MOST];

static void test(int at) {
    tests++;
    MPI_Test(&q[at], &flag, MPI_STATUS_IGNORE);
}

static void send(int to, MPI_Comm comm, int tag) {
    sends++;
    MPI_Send(&out, 1, MPI_INT, to, tag, comm);
}

static void post(int many) {
    for (int i = 0; i < many; i++) MPI_Irecv(&in[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &q[i]);
}

static void complete(int many) {
    for (int i = 0; i < many; i++) {
        send(0, MPI_COMM_SELF, i);
        do test(i); while (!flag);
    }
}

/* Six in turn, until several chunks are full. */
static void chunks(void) {
    post(MOST);
    for (int k = 0; k < 20000; k++) {
        for (int i = 0; i < 6 * MOST; i++) test(i % MOST);
        send(MPI_PROC_NULL, MPI_COMM_SELF, 0);
    }
    complete(MOST);
}

static void regions(void) {
    if (!detour_region_begin || !detour_region_end) exit(2);
    post(1);
    for (int k = 0; k < 500; k++) {
        for (int i = 0; i < k % 100; i++) test(0);
        detour_region_begin("step");
        for (int i = 0; i < k % 7; i++) test(0);
        detour_region_end();
    }
    complete(1);
}

static volatile int stop;

static void *switching(void *unused) {
    for (int i = 0; i < 300; i++) {
        usleep(100);
        MPI_Pcontrol(0);
        usleep(50);
        MPI_Pcontrol(1);
    }
    stop = 1;
    return unused;
}

/* Only what follows is counted. */
static void switched(void) {
    pthread_t thread;
    post(3);
    pthread_create(&thread, NULL, switching, NULL);
    for (int i = 0; !stop; i++) test(i % 3);
    pthread_join(thread, NULL);
    tests = 0;
    for (int i = 0; i < 1000; i++) send(MPI_PROC_NULL, MPI_COMM_SELF, 0);
    complete(3);
}

static jmp_buf before;

static void jumps(MPI_Comm *comm, int *error, ...) {
    (void)comm, (void)error;
    longjmp(before, 1);
}

/* A message that is too long ends a test by a jump, which does not return. */
static void jump(void) {
    MPI_Errhandler handler;
    static int many[4];
    MPI_Comm_create_errhandler(jumps, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (rank == 0) {
        MPI_Irecv(&in[0], 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &q[0]);
        send(1, MPI_COMM_WORLD, 1);
        if (!setjmp(before)) {
            for (;;) test(0);
        }
        tests--;
        for (int i = 0; i < 10; i++) send(MPI_PROC_NULL, MPI_COMM_SELF, 0);
    } else {
        MPI_Recv(&in[0], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        usleep(20000);
        sends++;
        MPI_Send(many, 4, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
}

/* The message arrives while the program does something else. */
static void pauses(void) {
    for (int round = 0; round < 20; round++) {
        if (rank == 0) {
            MPI_Irecv(&in[0], 1, MPI_INT, 1, round, MPI_COMM_WORLD, &q[0]);
            MPI_Barrier(MPI_COMM_WORLD);
            for (int i = 0; i < 1000; i++) test(0);
            usleep(50000);
            do test(0); while (!flag);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
            usleep(20000);
            send(0, MPI_COMM_WORLD, round);
        }
    }
}

static int is_child, ended;

static int copy(MPI_Comm comm, int key, void *extra, void *value, void *copied, int *flag) {
    (void)comm, (void)key, (void)extra, (void)value, (void)copied;
    *flag = 0;
    pid_t child = fork();
    if (child == 0) is_child = 1;
    else waitpid(child, &ended, 0);
    return MPI_SUCCESS;
}

/* A child that is forked inside of a call returns from it. */
static void forks(void) {
    int key;
    MPI_Comm dup;
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &out);
    MPI_Comm_dup(MPI_COMM_SELF, &dup);
    if (is_child) _exit(0);
    if (ended != 0) exit(3);
    MPI_Comm_delete_attr(MPI_COMM_SELF, key);
    post(1);
    for (int i = 0; i < 1000; i++) test(0);
    complete(1);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } kinds[] = {
        {"chunks", chunks}, {"regions", regions}, {"switched", switched},
        {"jump", jump}, {"pauses", pauses}, {"forks", forks},
    };
    int level, alone = strcmp(argv[1], "switched") != 0;
    /* Jumps would leave the locks of several threads locked. */
    MPI_Init_thread(&argc, &argv, alone ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(argv[1], kinds[i].name)) kinds[i].run();
    if (rank == 0) printf("%ld %ld\n", tests, sends);
    MPI_Finalize();
    return 0;
}
