#!/bin/sh
# Slurm prolog: records the noise of jobs that request it (`sbatch --comment=detour`), or of every job
# with DETOUR_JOBS=all in /etc/default/detour. With cgroup v2, what is taken from the job's own processes;
# otherwise the kernel records of the whole node. No probe, which would occupy the job's CPUs. The epilog
# stops the recording.
#
# The job always starts: the prolog waits at most a second, and its exit status is always 0.

DETOUR=/usr/bin/detour
DETOUR_DIR=/var/lib/detour/jobs
DETOUR_JOBS=asked
# The recording stops after this time if the epilog never runs.
DETOUR_LONGEST=7d
# Where the cgroups of jobs appear, as a shell pattern; empty to record whole nodes.
DETOUR_CGROUPS='/sys/fs/cgroup/system.slice/*slurmstepd.scope'
[ -r /etc/default/detour ] && . /etc/default/detour

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
# Several slurmd may share a host.
name=$job-${SLURMD_NODENAME:-node}
case $name in *[!A-Za-z0-9._-]*) exit 0 ;; esac
case $DETOUR_JOBS:${SLURM_JOB_COMMENT:-} in
all:* | *:*detour*) ;;
*) exit 0 ;;
esac
[ -x "$DETOUR" ] || exit 0
umask 027
mkdir -p "$DETOUR_DIR" 2>/dev/null || exit 0

# Runs in a separate session without slurmd's file descriptors, so that slurmd does not wait for it.
# The job's cgroup appears with its first step: within ten seconds, or the node is recorded instead.
# shellcheck disable=SC2016 # Expanded by the inner shell.
setsid sh -c '
    echo $$ >"$1"
    cgroups=$2 job=$3
    shift 3
    for _ in 0 1 2 3 4 5 6 7 8 9; do
        for cgroup in $cgroups; do
            [ -d "$cgroup" ] || break 2
            [ -d "$cgroup/job_$job" ] && exec "$@" --cgroup "$cgroup/job_$job"
        done
        sleep 1
    done
    exec "$@" --no-probe' sh "$DETOUR_DIR/$name.pid" "$DETOUR_CGROUPS" "$job" \
    "$DETOUR" record --quiet --duration "$DETOUR_LONGEST" \
    --output "$DETOUR_DIR/detour-%j-%h-%t.detour" \
    </dev/null >/dev/null 2>>"$DETOUR_DIR/errors.log" &
# slurmd kills the prolog's process group when the prolog exits. The PID file exists once the session
# does; waiting longer than a second would delay the job.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -s "$DETOUR_DIR/$name.pid" ] && break
    sleep 0.1
done
exit 0
