#!/bin/busybox sh
# The first and only process of a guest. It runs what arrives on the second serial port, one command a line, and prints
# where each begins and how it ended; the first serial port belongs to the kernel. With `interactive` on the kernel's
# command line it is a shell on the first port instead.
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=linux
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /dev/shm /var/log /var/cache/opensm /var/run
mount -t tmpfs tmpfs /dev/shm
ip link set lo up

cat >/tmp/functions <<'FUNCTIONS'
# load [PARAMETER=VALUE…]: loads every module in order; the parameters are those of ib_qib.
load() {
    for module in $(cat /modules/order); do
        [ -d "/sys/module/$module" ] && continue
        if [ "$module" = ib_qib ]; then
            insmod "/modules/$module.ko" "$@" || return 1
        else
            insmod "/modules/$module.ko" || return 1
        fi
    done
}

# cards: the PCI addresses of the cards.
cards() {
    for device in /sys/bus/pci/devices/*; do
        [ "$(cat "$device/vendor" "$device/device" | tr '\n' ' ')" = "0x1077 0x7322 " ] && basename "$device"
    done
}


# services: what an init system does at boot about devices and modules, with the real udev.
services() {
    mkdir -p /run/udev /etc/udev/rules.d
    /usr/lib/systemd/systemd-udevd --daemon 2>/dev/null || return 1
    udevadm trigger --action=add --subsystem-match=pci && udevadm settle --timeout=60 || return 1
    for file in /etc/modules-load.d/*.conf; do
        [ -f "$file" ] || continue
        for module in $(grep -v '^#' "$file"); do modprobe "$module" || return 1; done
    done
    udevadm settle --timeout=60
}

# within SECONDS COMMAND…: until the command succeeds.
within() {
    until_s=$(($(date +%s) + $1))
    shift
    until eval "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$until_s" ] || return 1
        usleep 200000
    done
}

# port NUMBER FILE: a file of a port in sysfs.
port() {
    cat "/sys/class/infiniband/qib0/ports/$1/$2"
}
FUNCTIONS
. /tmp/functions

if grep -qw interactive /proc/cmdline; then
    echo "load: loads ib_qib. port 1 state: shows a port. exit: ends the guest."
    ENV=/tmp/functions setsid cttyhack sh
    poweroff -f
fi

# The reader is a process of its own: orphans become children of the first process, and a signal that one of them ended
# makes the shell's `read` forget what it has read of a line.
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
(
    echo "@@ready" >&3
    while read -r number command <&3; do
        echo "@@begin $number" >&3
        (eval "$command") </dev/null >&3 2>&1
        echo "@@end $number $?" >&3
    done
) &
wait $!
poweroff -f
