# Every Ethernet device, but not what containers and tunnels make, takes what its
# segment offers: DHCP for IPv4, router advertisements for IPv6 with the address
# made from the MAC, so that both are those of the scenario. Names come from
# whoever gave the address. Nobody else can have a declared address, so an IPv6
# address is used at once; looking for another that has it takes a second each
# for the link's own and for the segment's. A name is not told: at that time it
# may still be that of the machine that this one was cloned from.
mkdir -p /etc/systemd/network /etc/systemd/resolved.conf.d
cat > /etc/systemd/network/10-segment.network <<'END'
[Match]
Type=ether
Kind=!*

[Network]
DHCP=ipv4
IPv6AcceptRA=yes
IPv6PrivacyExtensions=no
IPv6LinkLocalAddressGenerationMode=eui64
IPv6DuplicateAddressDetection=0
LLMNR=no
MulticastDNS=no

[DHCPv4]
ClientIdentifier=mac
SendHostname=no
UseHostname=no
UseDomains=yes

[IPv6AcceptRA]
DHCPv6Client=no
UseDomains=yes
END
cat > /etc/systemd/resolved.conf.d/segment.conf <<'END'
[Resolve]
FallbackDNS=
LLMNR=no
MulticastDNS=no
END
systemctl enable systemd-networkd.service systemd-resolved.service

# One interface with an address is online: a machine may well have another that
# nobody answers on.
mkdir -p /etc/systemd/system/systemd-networkd-wait-online.service.d
cat > /etc/systemd/system/systemd-networkd-wait-online.service.d/any.conf <<'END'
[Service]
ExecStart=
ExecStart=/usr/lib/systemd/systemd-networkd-wait-online --any --timeout=60
END

rm -f /etc/resolv.conf
ln -s ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' > /etc/hosts
