# Two tools watch CPU 1 under the same loads: each alone, then both at once. CPU 0 does everything else.
events=/sys/kernel/tracing/instances/events
mkdir $events
echo 16384 > $events/buffer_size_kb
echo 1 > $events/events/osnoise/enable

# Only osnoise events during the loads count; starting the tools takes longer.
loads() {
    echo from > $events/trace_marker
    from=$(cut -d' ' -f1 /proc/uptime)
    loadgen ipi --from 0 --to 1 --count 800 --pause-us 1000 > /tmp/ipi &
    ipi=$!
    loadgen daemon --cpu 1 --seconds 1 > /tmp/daemon
    wait $ipi
    to=$(cut -d' ' -f1 /proc/uptime)
    echo to > $events/trace_marker
    echo "@vm figure loads: {\"seconds\":[$from,$to],\"ipi\":$(cat /tmp/ipi),\"daemon\":$(cat /tmp/daemon)}"
}
rtla_start() {
    echo > $events/trace
    rtla osnoise top -q -c 1 -H 0 -p 100000 -r 100000 -d 60s > /tmp/rtla &
    rtla=$!
    # The first event of its thread shows that it runs.
    until grep -q sample_threshold $events/trace; do usleep 50000; done
}
# A line for each class of osnoise events: class, count and nanoseconds. Interference is the number of
# interrupts and threads in a gap that the thread saw.
rtla_stop() {
    kill -INT $rtla
    wait $rtla
    echo "@vm figure rtla $1: $(grep '^ *1 #' /tmp/rtla)"
    awk -v run="$1" '
        / tracing_mark_write: from/ { counts = 1 }
        / tracing_mark_write: to/ { counts = 0 }
        !counts { next }
        { duration = 0; for (i = 1; i < NF; i++) if ($i == "duration") duration = $(i + 1) }
        / irq_noise: / { count["irq"]++; time["irq"] += duration }
        / softirq_noise: / { count["softirq"]++; time["softirq"] += duration }
        / nmi_noise: / { count["nmi"]++; time["nmi"] += duration }
        / thread_noise: / { count["thread"]++; time["thread"] += duration }
        / thread_noise: +fakemond:/ { count["daemon"]++; time["daemon"] += duration }
        / irq_noise: call_function_single:/ { count["ipi"]++; time["ipi"] += duration }
        / sample_threshold: / { count["all"]++; time["all"] += duration }
        / sample_threshold: .* interference 0$/ { count["hw"]++; time["hw"] += duration }
        END { for (c in count) printf "@vm figure osnoise %s %s: %d %.0f\n", run, c, count[c], time[c] }
    ' $events/trace
    echo "@vm figure osnoise $1 lost: $(awk '/overrun|dropped/ { n += $NF } END { print n }' $events/per_cpu/cpu1/stats) 0"
}
detour_start() {
    detour record -q -c 1 -H 0 -d 60s -o /tmp/$1.detour &
    detour=$!
    until [ -s /tmp/$1.detour ]; do usleep 50000; done
}
detour_stop() {
    kill -TERM $detour
    wait $detour
    echo "@vm figure detour $1: $(detour report --json --no-projection /tmp/$1.detour | tr -d '\n')"
}

rtla_start; loads; rtla_stop alone
detour_start alone; loads; detour_stop alone
rtla_start; detour_start both; loads; detour_stop both; rtla_stop both
