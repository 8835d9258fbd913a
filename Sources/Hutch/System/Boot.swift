import CSystem
import Synchronization

/// Identifies a boot of a machine. Numbers of 0: not known, and equal to nothing.
struct Boot {
  var id: (UInt64, UInt64) = (0, 0)
  /// Unix time minus CLOCK_BOOTTIME.
  var offset: Int64 = 0

  var isKnown: Bool { id.0 != 0 || id.1 != 0 }

  func isSame(as other: Boot) -> Bool {
    isKnown && id.0 == other.id.0 && id.1 == other.id.1
  }

  /// The id, once a call has read it: it is needed later, when the process may have no descriptor
  /// left. 0: not yet. The first half is stored last (release) and loaded first (acquire).
  private static let firstHalf = Atomic<UInt64>(0)
  private static let secondHalf = Atomic<UInt64>(0)

  /// Like `current`, but fails if another try may find the id.
  static func known() throws(Failure) -> Boot {
    hutch_set_errno(0)
    let boot = current()
    let code = hutch_errno()
    // Without a word of the kernel, or where the file is not there or not to be read.
    if boot.isKnown || code == 0 || code == ENOENT || code == EACCES || code == EPERM {
      return boot
    }
    throw .system("cannot read the number of the boot", errno: code)
  }

  /// The current boot; its offset is that of the wall clock.
  static func current() -> Boot {
    var boot = Boot()
    boot.offset = Clock.read(CLOCK_REALTIME) &- Clock.read(CLOCK_BOOTTIME)
    let first = firstHalf.load(ordering: .acquiring)
    if first != 0 {
      boot.id = (first, secondHalf.load(ordering: .relaxed))
      return boot
    }
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
    secondHalf.store(boot.id.1, ordering: .relaxed)
    firstHalf.store(boot.id.0, ordering: .releasing)
    return boot
  }
}
