#!/bin/sh
# Slurm prolog: records what the kernel takes from a job that asks for it (`sbatch --comment=detour`,
# or every job with DETOUR_JOBS=all in /etc/default/detour). Kernel records alone, no probe: it takes
# no CPU from the job. The epilog ends the recording.
#
# Whatever happens here, the job starts: nothing is waited for longer than a second, and the exit code
# is always 0.

DETOUR=/usr/bin/detour
DETOUR_DIR=/var/lib/detour/jobs
DETOUR_JOBS=asked
# Ends by itself if the epilog never comes.
DETOUR_LONGEST=7d
[ -r /etc/default/detour ] && . /etc/default/detour

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
# Several node daemons may share a host.
name=$job-${SLURMD_NODENAME:-node}
case $name in *[!A-Za-z0-9._-]*) exit 0 ;; esac
case $DETOUR_JOBS:${SLURM_JOB_COMMENT:-} in
all:* | *:*detour*) ;;
*) exit 0 ;;
esac
[ -x "$DETOUR" ] || exit 0
umask 027
mkdir -p "$DETOUR_DIR" 2>/dev/null || exit 0

# A session of its own, with nothing of slurmd's open: slurmd does not wait for it.
setsid sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$DETOUR_DIR/$name.pid" \
    "$DETOUR" record --quiet --no-probe --duration "$DETOUR_LONGEST" \
    --output "$DETOUR_DIR/detour-%j-%h-%t.detour" \
    </dev/null >/dev/null 2>>"$DETOUR_DIR/errors.log" &
# slurmd kills what is still in the prolog's group when that ends. The file is there once the session
# is; a second is enough, and the job is not kept longer.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -s "$DETOUR_DIR/$name.pid" ] && break
    sleep 0.1
done
exit 0
