/* Burns CPU time: burn SECONDS [BURST_MS PERIOD_MS], continuously or in bursts. */
#include <stdlib.h>
#include <time.h>

static double at(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    double end = at(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 1);
    double burst = argc > 2 ? atof(argv[2]) * 1e-3 : 1, period = argc > 3 ? atof(argv[3]) * 1e-3 : 0;
    while (at(CLOCK_MONOTONIC) < end) {
        double until = at(CLOCK_PROCESS_CPUTIME_ID) + burst;
        while (at(CLOCK_PROCESS_CPUTIME_ID) < until && at(CLOCK_MONOTONIC) < end) {}
        struct timespec pause = {(long)period, (long)((period - (long)period) * 1e9)};
        if (period > 0) nanosleep(&pause, 0);
    }
    return 0;
}
