#!/bin/bash
# A cluster on one host: munged, slurmctld and two node daemons, run in a root that contains only Debian's
# packages, in separate namespaces. Everything it started ends with this script. Results are printed like
# those of a test binary.
set -u
export PATH=/usr/sbin:/usr/bin
state=/run/cluster
mkdir -p $state/munge $state/ctld $state/node1 $state/node2 /cluster/jobs
cd /cluster/jobs || exit 1

show_logs() {
    for log in "$state"/*.log; do
        echo "--- $log"
        tail -n 30 "$log"
    done
}

# Separate key and socket.
mungekey --create --keyfile $state/munge/key
munged --force --key-file=$state/munge/key --socket=$state/munge/socket \
    --pid-file=$state/munge/pid --log-file=$state/munged.log --seed-file=$state/munge/seed

slurmctld -f /etc/slurm/slurm.conf -L $state/slurmctld.log
for node in node1 node2; do
    # Each node has its own host name.
    unshare --uts sh -c "echo $node >/proc/sys/kernel/hostname && \
        exec slurmd -N $node -f /etc/slurm/slurm.conf -L $state/$node.log"
done
ready=
for _ in $(seq 150); do
    [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && ready=yes && break
    sleep 0.2
done
if [ -z "$ready" ]; then
    echo "slurm does not start: $(sinfo 2>&1)"
    show_logs
    echo "@slurm cannot start"
    exit 0
fi
echo "@slurm started"

fail() {
    echo "$1"
    show_logs
    return 1
}

# On a busy machine, a node that misses the agreed start time starts five seconds later.
record_on_two_nodes() {
    for _ in 1 2 3; do
        record_together || return
        # One clock here: nodes that are ready in time start almost simultaneously.
        skew=$(sed -n 's/.*"start_skew_s": \([0-9]*\).*/\1/p' merged.json)
        [ "$skew" = 0 ] && return
        echo "the nodes started $skew s apart"
    done
    fail "the nodes never started together"
}

record_together() {
    rm -f ./*.detour
    timeout 60 srun -N2 --ntasks-per-node=1 detour record --quiet --no-bpf -d 2s --align 5s ||
        fail "srun failed" || return
    set -- detour-*.detour
    [ $# = 2 ] || fail "expected two files, got $*" || return
    case "$*" in
    detour-*-node1-?-*.detour\ detour-*-node2-?-*.detour) ;;
    *) fail "file names lack job, host or rank: $*" || return ;;
    esac
    job=${1#detour-}
    job=${job%%-*}
    # Both nodes are this machine, and recorded the same CPUs.
    detour merge detour-"$job"-*.detour 2>refused.txt && { fail "one machine was accepted twice" || return; }
    grep -q 'of one machine (node1 and node2)' refused.txt || fail "$(cat refused.txt)" || return
    detour merge --force --json detour-"$job"-*.detour >merged.json || fail "merge failed" || return
    cat merged.json
    [ -f "detour-$job.detour" ] || fail "detour-$job.detour was not written" || return
    detour report "detour-$job.detour" >report.txt || fail "report failed" || return
    grep -A 5 '^Nodes' report.txt || fail "the report has no section Nodes" || return
    grep -q '^node1, node2' report.txt || fail "the report does not name the nodes" || return
}

simulate_as_a_job_array() {
    set -- simulate collective --ranks 2..4Ki --runs 64 --noise periodic:1000Hz,100us
    cat >array.sh <<END
#!/bin/sh
exec detour $* --shard \$SLURM_ARRAY_TASK_ID/8 -o share-\$SLURM_ARRAY_TASK_ID.json
END
    timeout 120 sbatch --wait --array=1-8 --output=array-%a.out array.sh ||
        fail "sbatch failed" || return
    detour merge --json share-*.json | grep -v messages_per_s >joined.json
    detour "$@" --json | grep -v messages_per_s >whole.json
    [ -s whole.json ] || fail "nothing was simulated" || return
    cmp joined.json whole.json || fail "the shares give different results" || return
    rm share-5.json
    detour merge share-*.json 2>refused.txt && { fail "a missing share was accepted" || return; }
    grep -q '8 shards expected: 5 is missing' refused.txt || fail "$(cat refused.txt)" || return
}

whole() {
    detour report --json --no-projection "$1" 2>/dev/null | grep -q '"truncated": null'
}

job_recorded_by_prolog_and_epilog() {
    timeout 60 srun -N2 --comment=detour sleep 3 || fail "srun failed" || return
    # srun does not wait for the epilog, and the epilog does not wait for long.
    for _ in $(seq 100); do
        set -- /var/lib/detour/jobs/detour-*-node?-*.detour
        [ $# = 2 ] && whole "$1" && whole "$2" && break
        sleep 0.2
    done
    echo "recorded: $*"
    [ -z "$(sinfo --noheader --states=drain,down --format=%n)" ] ||
        fail "prolog or epilog drained a node" || return
    [ -z "$(ls /var/lib/detour/jobs/*.pid 2>/dev/null)" ] ||
        fail "the epilog left a pid file" || return
    [ $# = 2 ] && [ -f "$1" ] || fail "expected two recordings, got $*" || return
    whole "$1" && whole "$2" || fail "a recording is truncated" || return
}

# Slurm starts the ranks itself, without mpirun.
mpi_program_recorded_under_srun() {
    [ -x /cluster/ring ] || return $SKIPPED
    timeout 120 srun --mpi=pmi2 -N2 -n4 detour mpi record --quiet -o ring-run -- /cluster/ring ||
        fail "srun failed" || return
    detour mpi report --json ring-run >ring.json || fail "report failed" || return
    grep -q '"ranks_read": 4' ring.json || fail "not four ranks: $(ls ring-run)" || return
    grep -q '"messages": 40,' ring.json || fail "not the messages of four ranks" || return
    grep -A2 '"name": "MPI_Allreduce"' ring.json | grep -q '"count": 40,' ||
        fail "not the collectives of four ranks" || return
}

# The exit status of a test for which something is missing.
SKIPPED=77
passed=0
failed=0
ignored=0
for test in "$@"; do
    "$test"
    case $? in
    0)
        echo "test slurm::$test ... ok"
        passed=$((passed + 1))
        ;;
    $SKIPPED)
        echo "test slurm::$test ... ignored, no MPI compiler on the host"
        ignored=$((ignored + 1))
        ;;
    *)
        echo "test slurm::$test ... FAILED"
        failed=$((failed + 1))
        ;;
    esac
done
word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; $ignored ignored"
exit 0
