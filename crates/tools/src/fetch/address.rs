//! Which IP addresses are not public: this machine, private networks, and addresses that embed either.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Tells whether an address needs a rule that allows it.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_4(address),
        IpAddr::V6(address) => is_private_6(address) || embedded(address).is_some_and(is_private_4),
    }
}

fn is_private_4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        // Carrier-grade NAT, protocol assignments, benchmarking, reserved.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || a >= 240
}

fn is_private_6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let first = segments[0];
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        // Deprecated site-local addresses, documentation, discard-only, local-use NAT64, benchmarking, ORCHID, SRv6.
        || first & 0xffc0 == 0xfec0
        || matches!(segments, [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x100, 0, 0, 0, ..])
        || matches!(segments, [0x64, 0xff9b, 1, ..] | [0x2001, 2, 0, ..] | [0x2001, 0x10..=0x2f, ..])
        || first == 0x5f00
        // Everything else below 2000::/3 that is not mapped, compatible or NAT64 is not assigned to the public internet.
        || (first & 0xe000 != 0x2000 && embedded(address).is_none())
}

/// Returns the IPv4 address that an IPv6 address embeds: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
            if (high, low) != (0, 0) && (high, low) != (0, 1) =>
        {
            Some(of(high, low))
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        // Translated, RFC 2765.
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        // The client of Teredo has all bits inverted.
        [0x2001, 0, _, _, _, _, high, low] => Some(of(!high, !low)),
        // ISATAP: the interface identifier has the address.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let private = [
            "127.0.0.1",
            "127.8.9.10",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::1",
            "::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::ffff:0:127.0.0.1",
            "64:ff9b:1::7f00:1",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
            "2606:4700::5efe:10.0.0.1",
            "2606:4700::200:5efe:192.168.0.1",
            "fe80::5efe:8.8.8.8",
            "100::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "3fff:fff::1",
            "5f00::1",
            "4000::1",
            "1::1",
            "::2:0:0:1",
        ];
        for text in private {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "2606:4700::5efe:8.8.8.8",
            "2a00:1450::1",
        ] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }
}
