#!/bin/sh
# The guest's init process. Lines that begin with `@vm` are for the host.
export PATH=/bin HOME=/ TMPDIR=/tmp
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
echo +cpu > /sys/fs/cgroup/cgroup.subtree_control
mount -t debugfs none /sys/kernel/debug
mount -t tracefs none /sys/kernel/tracing
mkdir -p /dev/pts && mount -t devpts none /dev/pts
ip link set lo up
# The only storage: a loop device backed by a file in memory.
if [ -e /loop.ko ] && insmod /loop.ko; then
    dd if=/dev/zero of=/tmp/storage bs=1M count=4 2> /dev/null
    losetup /dev/loop0 /tmp/storage
fi
echo "@vm up $(cut -d' ' -f1 /proc/uptime)"
echo "@vm kernel $(uname -r)"
# Output goes to a file, since a kernel message could interrupt it on the console.
one_test() {
    from=$(cut -d' ' -f1 /proc/uptime)
    timeout 300 /bin/kernel-tests --test-threads=1 --exact "$1" > /tmp/test.log 2>&1
    to=$(cut -d' ' -f1 /proc/uptime)
    if grep -q '^test result: ok. 1 passed' /tmp/test.log; then outcome=passed
    elif grep -q '^test result: ok. 0 passed; 0 failed; 1 ignored' /tmp/test.log; then outcome=skipped
    else outcome=FAILED; fi
    [ $outcome = FAILED ] && sed 's/^/    /' /tmp/test.log
    # Only a skipped test has one.
    reason=$(sed -n 's/^test .* \.\.\. ignored, *//p' /tmp/test.log)
    echo "@vm test $1 $outcome $from $to $reason"
}
# All tests with this prefix, in one process: they share a recording.
tests_of() {
    from=$(cut -d' ' -f1 /proc/uptime)
    timeout 150 /bin/kernel-tests --test-threads=1 --color=never "$1::" > /tmp/test.log 2>&1
    to=$(cut -d' ' -f1 /proc/uptime)
    grep -q '^test result: ok' /tmp/test.log || sed 's/^/    /' /tmp/test.log
    sed -n 's/^test \([^ ]*\) *\.\.\. /\1 /p' /tmp/test.log | while read -r name outcome; do
        reason=
        case $outcome in
        ok) outcome=passed ;;
        ignored*) reason=${outcome#ignored,} outcome=skipped ;;
        *) outcome=FAILED ;;
        esac
        echo "@vm test $name $outcome $from $to $reason"
    done
}
. /script
echo "@vm end"
sync
reboot -f
