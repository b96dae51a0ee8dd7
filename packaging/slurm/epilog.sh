#!/bin/sh
# Slurm epilog: stops the recording that the prolog started. The trace file is complete.
#
# The exit status is always 0: Slurm drains a node whose epilog fails.

DETOUR_DIR=/var/lib/detour/jobs
[ -r /etc/default/detour ] && . /etc/default/detour

job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
name=$job-${SLURMD_NODENAME:-node}
case $name in *[!A-Za-z0-9._-]*) exit 0 ;; esac
file=$DETOUR_DIR/$name.pid
[ -r "$file" ] || exit 0
read -r pid <"$file" || pid=
rm -f "$file"
case $pid in '' | *[!0-9]*) exit 0 ;; esac

ours() {
    # The PID may have been reused.
    grep -qF -- "$DETOUR_DIR/detour-" "/proc/$pid/cmdline" 2>/dev/null
}
ours && kill -TERM "$pid" 2>/dev/null
# Give it a moment to write the end of the file, but do not hold up the node longer.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ours || break
    sleep 0.2
done
exit 0
