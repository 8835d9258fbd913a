import CSystem

/// Identifies a boot of a machine. Nil numbers: not known, and equal to nothing.
struct Boot {
  var id: (UInt64, UInt64) = (0, 0)
  /// Unix time minus CLOCK_BOOTTIME.
  var offset: Int64 = 0

  var isKnown: Bool { id.0 != 0 || id.1 != 0 }

  func isSame(as other: Boot) -> Bool {
    isKnown && id.0 == other.id.0 && id.1 == other.id.1
  }

  /// The current boot; its offset is that of the wall clock.
  static func current() -> Boot {
    var boot = Boot()
    boot.offset = Clock.read(CLOCK_REALTIME) &- Clock.read(CLOCK_BOOTTIME)
    guard let number = Files.open(Files.path("/proc/sys/kernel/random/boot_id"), O_RDONLY) else {
      return boot
    }
    let file = Descriptor(owning: number)
    var text = (UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0))
    withUnsafeMutableBytes(of: &text) { bytes in
      guard Files.read(file.number, into: bytes) ?? 0 >= 36 else { return }
      var digits = 0
      var id = (UInt64(0), UInt64(0))
      for byte in bytes {
        let digit: UInt8
        switch byte {
        case 0x30...0x39: digit = byte - 0x30
        case 0x61...0x66: digit = byte - 0x61 + 10
        default: continue
        }
        if digits < 16 {
          id.0 = id.0 << 4 | UInt64(digit)
        } else {
          id.1 = id.1 << 4 | UInt64(digit)
        }
        digits += 1
      }
      if digits == 32 { boot.id = id }
    }
    return boot
  }
}
