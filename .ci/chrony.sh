#!/bin/sh
# Time servers for the tests of the clock: unpacks Debian's package of chrony into a folder.
# It is not installed, because that would replace what keeps the time of this machine.
folder=$1
PATH=$PATH:/usr/sbin command -v chronyd > /dev/null && exit
mkdir -p "$folder"
(cd "$folder" && apt-get download -qq chrony && dpkg-deb --extract chrony_*.deb .) > /dev/null 2>&1 ||
  echo 'chrony cannot be fetched: the tests of the clock with real time servers are skipped'
