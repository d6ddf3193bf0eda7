#!/usr/bin/env bash
# Starts a Slurm of this machine alone, for trying `--engine slurm` and for test_slurm.py. As root, on Debian:
#
#   apt-get install slurm-wlm munge
#   bash tests/experiments/one_node_slurm.sh DIR    # DIR takes its configuration, state and logs
#   export SLURM_CONF=DIR/slurm.conf && sinfo # shows one idle node
#   scontrol shutdown                         # ends it
#
# Processes are followed without cgroups, and there is no accounting: sacct has nothing to say.
set -euo pipefail
mkdir -p "$1/state" "$1/spool" /run/munge
dir=$(cd "$1" && pwd)
host=$(hostname -s)
chown munge: /run/munge
cat > "$dir/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=${CPUS:-2} State=UNKNOWN
PartitionName=one Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$dir/slurm.conf
munge -n > /dev/null 2>&1 || runuser -u munge -- munged
slurmctld
slurmd
