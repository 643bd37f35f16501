# Makes one node of a lab and becomes its PID 1. Started as: sh -e boot.sh enter|boot, in new
# pid, mount, uts and ipc namespaces and the node's network namespace.
# LAB_DIR: the node's folder on the lab's tmpfs. LAB_LOWER: lower layers, uppermost first.
# LAB_HOST: host name. LAB_CGROUP: the node's cgroup folder on the host.
if [ "$1" = enter ]; then
	# Move first, unshare then: so this cgroup becomes the root of what the node sees.
	echo 0 >"$LAB_CGROUP/cgroup.procs"
	exec unshare --cgroup sh -e "$LAB_DIR/../../boot.sh" boot
fi
R=$LAB_DIR/root
hostname "$LAB_HOST"
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$LAB_LOWER,upperdir=$LAB_DIR/upper,workdir=$LAB_DIR/work" "$R"
mount -t proc proc "$R/proc" -o nosuid,nodev,noexec
mount --bind "$R/proc/sys" "$R/proc/sys"
mount -o remount,bind,ro "$R/proc/sys"
mount -t sysfs sysfs "$R/sys" -o ro,nosuid,nodev,noexec
mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup" -o nosuid,nodev,noexec
mount -t tmpfs tmpfs "$R/run" -o mode=755,nosuid,nodev
mount -t tmpfs tmpfs "$R/tmp" -o mode=1777,nosuid,nodev
mount -t tmpfs tmpfs "$R/dev" -o mode=755,nosuid
mknod -m 666 "$R/dev/null" c 1 3
mknod -m 666 "$R/dev/zero" c 1 5
mknod -m 666 "$R/dev/full" c 1 7
mknod -m 666 "$R/dev/random" c 1 8
mknod -m 666 "$R/dev/urandom" c 1 9
mknod -m 666 "$R/dev/tty" c 5 0
mknod -m 600 "$R/dev/console" c 1 3
ln -s /proc/self/fd "$R/dev/fd"
ln -s fd/0 "$R/dev/stdin"
ln -s fd/1 "$R/dev/stdout"
ln -s fd/2 "$R/dev/stderr"
mkdir "$R/dev/pts" "$R/dev/shm" "$R/dev/mqueue"
mount -t devpts devpts "$R/dev/pts" -o newinstance,ptmxmode=0666,mode=620,gid=5
ln -s pts/ptmx "$R/dev/ptmx"
mount -t tmpfs shm "$R/dev/shm" -o mode=1777,nosuid,nodev
mount -t mqueue mqueue "$R/dev/mqueue"
mkdir -p "$R/run/host/lab" "$R/.old"
mount --bind "$LAB_DIR/notify" "$R/run/host/lab"
mount --bind "$LAB_DIR/../../hosts" "$R/etc/hosts"
cd "$R"
pivot_root . .old
umount -l /.old
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The users that an installed layer declares exist before its units start.
systemd-sysusers >/dev/null 2>&1 || :
exec setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio env -i container=lab PATH="$PATH" \
	NOTIFY_SOCKET=/run/host/lab/ready /lib/systemd/systemd --log-target=journal-or-kmsg --show-status=false
