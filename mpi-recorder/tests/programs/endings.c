/* Programs that end or run in ways that a collector must survive. The first argument says which. */
#define _GNU_SOURCE
#include <detour.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG "assemble_the_global_stiffness_matrix_for_all_elements_of_level_0_of_mesh"

static int rank, size, buffer[64];
static char *directory;

/* A counter that survives the process. */
static atomic_long *counter(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/count-%d", directory, rank);
    int file = open(path, O_CREAT | O_RDWR, 0644);
    if (ftruncate(file, 4096)) exit(9);
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

/* All ranks have come this far. Outside of MPI: a rank is still inside of a barrier when another has left it,
   and mpirun kills it there if the other ends. */
static void meet(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/there-%d", directory, rank);
    close(open(path, O_CREAT | O_WRONLY, 0644));
    for (int other = 0; other < size; other++) {
        snprintf(path, sizeof path, "%s/there-%d", directory, other);
        while (access(path, F_OK)) usleep(1000);
    }
}

static void nothing(int calls) {
    for (int i = 0; i < calls; i++) MPI_Send(buffer, i % 7, MPI_INT, MPI_PROC_NULL, i % 5, MPI_COMM_WORLD);
}

/* Calls of every kind; only those that another rank or a later call can meet must be in the file. */
static void switched_off(void) {
    int flag, number;
    void *memory;
    MPI_Request request;
    MPI_Datatype type;
    MPI_Comm comm;
    MPI_Irecv(buffer + 8, 1, MPI_INT, 0, 7, MPI_COMM_SELF, &request);
    for (int i = 0; i < 3; i++) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
        MPI_Iprobe(0, 8, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Send(buffer, 1, MPI_INT, 0, 7, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* nothing is left */
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&type);
    MPI_Alloc_mem(64, MPI_INFO_NULL, &memory);
    MPI_Reduce_local(buffer, buffer + 8, 4, MPI_INT, MPI_SUM);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Cart_map(comm, 1, (int[]){1}, (int[]){0}, &number);
    MPI_Allreduce(buffer, buffer + 8, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Free_mem(memory);
}

static void die(int signal) {
    (void)signal;
    kill(getpid(), SIGKILL);
}

/* Rank 1 is killed after so many microseconds; both count their finished calls. */
static void killed(int after) {
    atomic_long *count = counter();
    meet();
    if (rank == 1) {
        struct itimerval timer = {.it_value = {.tv_sec = after / 1000000, .tv_usec = after % 1000000 + 1}};
        signal(SIGALRM, die);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
    for (long round = 0;; round++) {
        MPI_Request q[2];
        if (rank == 0 && round == 100) pause(); /* until mpirun ends it */
        MPI_Irecv(buffer, 4, MPI_INT, 0, 1, MPI_COMM_SELF, &q[0]);
        ++*count;
        /* Every now and then, tests that fail one soon after the other. */
        for (int i = 0, flag; round % 64 == 63 && i < 5000; i++) {
            MPI_Test(&q[0], &flag, MPI_STATUS_IGNORE);
            ++*count;
        }
        MPI_Isend(buffer + 8, 4, MPI_INT, 0, 1, MPI_COMM_SELF, &q[1]);
        ++*count;
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
        ++*count;
    }
}

/* One communicator a thread; the tag says which thread. None ends before all have begun: a thread that
   has ended leaves its number to the next one. */
static MPI_Comm comms[4];
static pthread_barrier_t all_there;
static void *thread(void *argument) {
    int tag = (int)(long)argument, other = (rank + 1) % size, from = (rank + size - 1) % size;
    int in[4], out[4];
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < 1000; i++) {
        MPI_Request q[2];
        MPI_Irecv(in, 4, MPI_INT, from, tag, comms[tag], &q[0]);
        MPI_Isend(out, 4, MPI_INT, other, tag, comms[tag], &q[1]);
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
        MPI_Send(out, tag, MPI_INT, MPI_PROC_NULL, tag, comms[tag]);
    }
    pthread_barrier_wait(&all_there);
    return NULL;
}

static long resident(void) {
    long pages = 0, shared = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld %ld %ld", &all, &pages, &shared) != 3) exit(9);
    fclose(file);
    return (pages - shared) * 4;
}

/* So many nonblocking calls, eight at a time; prints private resident KiB early and late. */
static void many(long calls) {
    long early = 0;
    MPI_Request q[8];
    for (long done = 0; done < calls; done += 8) {
        for (int i = 0; i < 8; i += 2) {
            MPI_Irecv(buffer + i, 1, MPI_INT, 0, i, MPI_COMM_SELF, &q[i]);
            MPI_Isend(buffer + 32 + i, 1, MPI_INT, 0, i, MPI_COMM_SELF, &q[i + 1]);
        }
        MPI_Waitall(8, q, MPI_STATUSES_IGNORE);
        if (done / 8 == calls / 80) early = resident();
    }
    printf("resident %ld %ld\n", early, resident());
}

int main(int argc, char **argv) {
    const char *mode = argv[1];
    int argument = argc > 2 ? atoi(argv[2]) : 0, provided;
    directory = getenv("LOG_DIR");
    if (!strcmp(mode, "threads")) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        if (provided < MPI_THREAD_MULTIPLE) return 77;
    } else MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(mode, "killed")) killed(argument);
    else if (!strcmp(mode, "abort")) {
        nothing(argument);
        MPI_Barrier(MPI_COMM_WORLD);
        meet();
        if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
        sleep(20);
    } else if (!strcmp(mode, "exit")) {
        nothing(argument);
        MPI_Barrier(MPI_COMM_WORLD);
        meet();
        _exit(0);
    } else if (!strcmp(mode, "fork")) {
        nothing(argument);
        pid_t child = fork();
        if (child == 0) {
            nothing(argument);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        nothing(argument);
        if (status) return 8;
    } else if (!strcmp(mode, "threads")) {
        pthread_t threads[4];
        pthread_barrier_init(&all_there, NULL, 4);
        for (long i = 0; i < 4; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
        for (long i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (long i = 0; i < 4; i++) MPI_Comm_free(&comms[i]);
    } else if (!strcmp(mode, "many")) many(argument);
    else if (!strcmp(mode, "nothing")) nothing(argument);
    else if (!strcmp(mode, "regions")) {
        detour_region_begin("outer");
        MPI_Pcontrol(1, "inner");
        nothing(1);
        MPI_Pcontrol(-1, "inner");
        MPI_Pcontrol(0);
        nothing(5);
        switched_off();
        MPI_Pcontrol(2);
        MPI_Pcontrol(1, LONG);
        MPI_Pcontrol(-1, LONG);
        MPI_Pcontrol(1, "tab\there"); /* not a name */
        MPI_Pcontrol(-1, "tab\there");
        MPI_Pcontrol(1, (char *)8);
        MPI_Pcontrol(1, "");
        detour_region_end();
    } else if (!strcmp(mode, "spawn")) {
        MPI_Comm parent, child;
        MPI_Comm_get_parent(&parent);
        if (parent == MPI_COMM_NULL) {
            char *arguments[] = {"spawn", "0", NULL};
            MPI_Comm_spawn(argv[0], arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child,
                MPI_ERRCODES_IGNORE);
        } else child = parent;
        MPI_Barrier(child);
        MPI_Comm_disconnect(&child);
    } else return 9;
    MPI_Finalize();
    printf("done %d\n", rank);
    return 0;
}
