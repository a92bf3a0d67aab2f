#!/bin/sh
# mmdebstrap's hook: makes copies of Slurm's programs that run on any host's files, by the loader and the libraries of the
# root file system that they came with. Usage: release_programs.sh ROOT PLACE, where PLACE is where the root will lie
set -eu
root=$1 place=$2
triple=$(basename "$(dirname "$(ls -d "$root"/usr/lib/*-linux-gnu/slurm-wlm)")")
loader=$(basename "$root/lib/$triple"/ld-linux-*.so.*)
folders=$place/usr/lib/$triple/slurm-wlm:$place/usr/lib/$triple:$place/lib/$triple
mkdir "$root/trainjob"
# A daemon learns from its own name what it is, and Debian gives it another.
cp "$root/usr/sbin/slurmd-wlm" "$root/trainjob/slurmd"
cp "$root/usr/sbin/slurmstepd-wlm" "$root/trainjob/slurmstepd"
for name in sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol sdiag sinfo sprio squeue sreport srun sshare \
  sstat strigger; do
  cp "$root/usr/bin/$name" "$root/trainjob/$name"
done
# RPATH, which a library's own dependencies are looked up by as well; RUNPATH is for the program's alone.
for program in "$root"/trainjob/*; do
  chroot "$root" patchelf --set-interpreter "$place/lib/$triple/$loader" --force-rpath --set-rpath "$folders" \
    "/trainjob/${program##*/}"
done
