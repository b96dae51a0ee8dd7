/* Two ranks, each a job of its own as far as it knows: rank 0 opens a port and accepts, rank 1 connects; then both join
 * by a socket. Each connection carries a message and a collective. The addresses are in files in LOG_DIR. */
#include "log.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int rank, x[4], y[4];

/* Hands a text to the other rank: outside of MPI, as two jobs would. */
static void publish(const char *name, const char *text) {
    char path[4096], hidden[4200];
    snprintf(path, sizeof path, "%s/%s", getenv("LOG_DIR"), name);
    snprintf(hidden, sizeof hidden, "%s.new", path);
    FILE *file = fopen(hidden, "w");
    fputs(text, file);
    fclose(file);
    rename(hidden, path);
}

static void look_up(const char *name, char *text, int size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("LOG_DIR"), name);
    while (access(path, F_OK)) usleep(1000);
    FILE *file = fopen(path, "r");
    if (!fgets(text, size, file)) exit(8);
    fclose(file);
}

/* A message each way, a broadcast from rank 0, and the end of the connection. */
static void talk(MPI_Comm other) {
    const char *both = strdup(mem(other));
    MPI_Status status;
    if (rank == 0) {
        MPI_Send(x, 3, MPI_INT, 0, 5, other);
        L("MPI_Send c=%s p=0 t=5 b=12\n", both);
        MPI_Recv(y, 4, MPI_INT, 0, 6, other, &status);
        L("MPI_Recv c=%s p=0 t=6 b=16 g=%s\n", both, got(&status));
    } else {
        MPI_Recv(y, 4, MPI_INT, 0, 5, other, &status);
        L("MPI_Recv c=%s p=0 t=5 b=16 g=%s\n", both, got(&status));
        MPI_Send(x, 2, MPI_INT, 0, 6, other);
        L("MPI_Send c=%s p=0 t=6 b=8\n", both);
    }
    int root = rank == 0 ? MPI_ROOT : 0;
    MPI_Bcast(x, 2, MPI_INT, root, other);
    L("MPI_Bcast c=%s p=%d b=8\n", both, canonical(root));
    MPI_Comm_disconnect(&other);
    L("MPI_Comm_disconnect c=%s\n", both);
}

static int connection(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char text[64];
    int door = socket(AF_INET, SOCK_STREAM, 0);
    if (rank == 0) {
        if (bind(door, (struct sockaddr *)&address, length) || listen(door, 1)) exit(8);
        getsockname(door, (struct sockaddr *)&address, &length);
        snprintf(text, sizeof text, "%d", ntohs(address.sin_port));
        publish("socket", text);
        return accept(door, NULL, NULL);
    }
    look_up("socket", text, sizeof text);
    address.sin_port = htons(atoi(text));
    if (connect(door, (struct sockaddr *)&address, length)) exit(8);
    return door;
}

int main(int argc, char **argv) {
    MPI_Comm other;
    char port[MPI_MAX_PORT_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    open_log(rank);
    L("MPI_Init\n");
    int joins = argc > 1 && !strcmp(argv[1], "join");
    if (joins) {
        int socket = connection();
        MPI_Comm_join(socket, &other);
        L("MPI_Comm_join n=%s\n", mem(other));
        talk(other);
        close(socket);
    } else for (int round = 0; round < 2; round++) {
        char name[16];
        snprintf(name, sizeof name, "port-%d", round);
        if (rank == 0) {
            MPI_Open_port(MPI_INFO_NULL, port);
            L("MPI_Open_port\n");
            publish(name, port);
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
            L("MPI_Comm_accept c=0 p=0 n=%s\n", mem(other));
        } else {
            look_up(name, port, sizeof port);
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
            L("MPI_Comm_connect c=1 p=0 n=%s\n", mem(other));
        }
        talk(other);
        if (rank == 0) {
            MPI_Close_port(port);
            L("MPI_Close_port\n");
        }
    }
    MPI_Finalize();
    L("MPI_Finalize\n");
    fclose(lg);
    return 0;
}
