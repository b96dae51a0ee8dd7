#!/bin/bash
# Run once in the new root: everything that all machines have in common. The two machines differ only in
# their host names, which the kernel's command line has, and their network addresses.
set -eu

# Addresses by the network cards' own.
for node in 1 2; do
    cat >/etc/systemd/network/node$node.network <<END
[Match]
MACAddress=52:54:00:00:00:0$node
[Network]
Address=10.0.0.$node/24
LinkLocalAddressing=no
IPv6AcceptRA=no
END
done
cat >/etc/hosts <<END
127.0.0.1 localhost
10.0.0.1 node1
10.0.0.2 node2
END
rm -f /etc/hostname
echo '/dev/vda / ext4 rw 0 1' >/etc/fstab

# The machines may log in to each other: mpirun does.
mkdir -p -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
cat >/etc/ssh/ssh_config.d/cluster.conf <<END
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
ControlMaster auto
ControlPath /run/ssh-%r@%h
ControlPersist 600
END
useradd --create-home --shell /bin/bash ann

cat >/etc/slurm/slurm.conf <<END
ClusterName=box
SlurmctldHost=node1
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/ctld
SlurmdSpoolDir=/var/lib/slurm/d
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=30
SlurmctldTimeout=60
MessageTimeout=60
KillWait=5
Prolog=/usr/share/detour/slurm/prolog.sh
Epilog=/usr/share/detour/slurm/epilog.sh
NodeName=node[1-2] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:2
END
cat >/etc/slurm/cgroup.conf <<END
CgroupPlugin=cgroup/v2
ConstrainCores=yes
ConstrainRAMSpace=no
END
mkdir -p /root/work /var/lib/slurm/ctld /var/lib/slurm/d /var/log/slurm
chown slurm: /var/lib/slurm/ctld /var/log/slurm
[ -s /etc/munge/munge.key ] || mungekey --create
chown munge:munge /etc/munge/munge.key

mpicc.openmpi -O1 -o /usr/local/bin/steps-openmpi /root/steps.c
mpicc.mpich -O1 -o /usr/local/bin/steps-mpich /root/steps.c
gcc -O1 -o /usr/local/bin/burn /root/burn.c

# The agent logs every question.
mkdir -p /etc/systemd/system/qemu-guest-agent.service.d
printf '[Service]\nLogLevelMax=notice\n' >/etc/systemd/system/qemu-guest-agent.service.d/quiet.conf

# Everything that is started only by a test, or that would only make noise on an emulated processor.
systemctl --quiet disable slurmd slurmctld munge podman podman.socket podman-auto-update.timer \
    podman-restart podman-clean-transient 2>/dev/null || true
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer \
    e2scrub_all.timer e2scrub_reap.service systemd-tmpfiles-clean.timer getty@tty1.service \
    serial-getty@ttyS0.service systemd-timesyncd.service 2>/dev/null || true
systemctl --quiet enable systemd-networkd ssh 2>/dev/null || true

printf 'virtio_pci\nvirtio_blk\next4\n' >/etc/initramfs-tools/modules
printf 'MODULES=list\nCOMPRESS=zstd\nFSTYPE=ext4\n' >/etc/initramfs-tools/conf.d/cluster
update-initramfs -u -k all
cp -L /vmlinuz /initrd.img /root/ 2>/dev/null || {
    cp /boot/vmlinuz-* /root/vmlinuz
    cp /boot/initrd.img-* /root/initrd.img
}
rm -rf /var/lib/apt/lists/* /var/cache/apt/*
