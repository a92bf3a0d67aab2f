# shellcheck shell=sh
# shellcheck disable=SC2154 # folder, private and root are set by inside.sh, which sources this
# The root file system of another release of Slurm. Its controller runs there; its nodes' daemons and its commands run on
# this host's files, by the release's own loader and libraries, so that jobs see what they see in any rehearsal.
mount --bind "$root" "$folder/release"
# Written to by several rehearsals, and changed by none.
mkdir "$private/upper" "$private/work"
mount -t overlay -o "lowerdir=$folder/release,upperdir=$private/upper,workdir=$private/work" trainjob "$folder/root"
mount --rbind /dev "$folder/root/dev"
mount --rbind /proc "$folder/root/proc"
cp "$folder/hosts" "$folder/root/etc/hosts"
cat "$folder/passwd" >>"$folder/root/etc/passwd"
for plugins in "$folder"/release/usr/lib/*/slurm-wlm; do
  mount --bind "$plugins" "$folder/plugins"
done
mkdir -p "$folder/root$folder"
mount --rbind "$folder" "$folder/root$folder"
mount -t overlay -o "lowerdir=$folder/release/trainjob:/usr/bin" trainjob /usr/bin
