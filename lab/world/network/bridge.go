package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func applyBridge(b Bridge) error {
	mac, err := net.ParseMAC(b.MAC)
	if err != nil {
		return err
	}
	off := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name = b.Link
	err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	link, err := netlink.LinkByName(b.Link)
	if err != nil {
		return err
	}
	if err := passAtOnce(link); err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("set its address: %v", err)
	}
	if len(b.Addrs) == 0 {
		if err := netlink.LinkSetARPOff(link); err != nil {
			return fmt.Errorf("switch ARP off: %v", err)
		}
	}
	if _, err := applyAddrs(link, b.Addrs); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	if slices.ContainsFunc(b.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() }) {
		return multicast(link)
	}
	return nil
}

// multicast makes the way that the kernel makes by itself only a second or so
// after a bridge's first port has a carrier. Without it the first machine of a
// segment asks for its router in vain, and asks again after 4 s. It is appended:
// each bridge has one of its own, and replacing would take that of another.
func multicast(link netlink.Link) error {
	err := netlink.RouteAppend(&netlink.Route{
		Dst: ipNet(netip.MustParsePrefix("ff00::/8")), LinkIndex: link.Attrs().Index,
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_MULTICAST, Protocol: unix.RTPROT_KERNEL, Priority: 256,
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make its way for multicast: %v", err)
	}
	return nil
}

// passAtOnce switches the spanning tree off and makes new ports forward from
// their first frame on; the kernel's default keeps them silent for 15 s. The
// library has no words for these two attributes.
//
// https://www.kernel.org/doc/html/latest/networking/bridge.html
func passAtOnce(bridge netlink.Link) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(bridge.Attrs().Index)
	request.AddData(info)

	linkInfo := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	linkInfo.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := linkInfo.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_BR_STP_STATE, nl.Uint32Attr(0))
	data.AddRtAttr(nl.IFLA_BR_FORWARD_DELAY, nl.Uint32Attr(0))
	request.AddData(linkInfo)

	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("switch its forward delay off: %v", err)
	}
	return nil
}
