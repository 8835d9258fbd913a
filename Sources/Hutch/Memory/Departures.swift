import Synchronization

/// Why a block left the memory tier.
enum DepartureCause: UInt8 {
  case replaced, evicted, expired, cleared, trimmed
}

/// The observer of the blocks that leave the tier: it is told at once, and in their order.
final class DepartureWatch {
  /// Whether `onLeaving` is called. Stored with release, loaded with acquire: a put that sees that
  /// it is on sees `onLeaving`.
  private let isActiveNow = Atomic<Bool>(false)
  /// Called with the lock of the block's shard held, so it must not wait for anything but a
  /// lock that is taken after those.
  private(set) var onLeaving: (UnownedBlock, DepartureCause) -> Void = { _, _ in }
  /// Called likewise with each dirty block that leaves, and when it was last read, before
  /// `onLeaving` is. To be set before the first dirty block is put.
  var onDirty: (UnownedBlock, Int64) -> Void = { _, _ in }
  /// Called likewise with each block that leaves and was read since it was written, when that was,
  /// and the time now, before `onDirty` is. The store's entry may live on by that read, and from
  /// the moment at which the block has left, the store alone is asked. To be set before the first
  /// put.
  var onRead: (UnownedBlock, DepartureCause, _ accessed: Int64, _ now: Int64) -> Void = {
    _, _, _, _ in
  }

  /// Before anything is watched.
  func set(_ onLeaving: @escaping (UnownedBlock, DepartureCause) -> Void) {
    self.onLeaving = onLeaving
  }

  /// Off while there is no listener: a put then replaces a value in place, and a clear is
  /// immediate.
  @inline(__always)
  var isOn: Bool {
    get { isActiveNow.load(ordering: .acquiring) }
    set { isActiveNow.store(newValue, ordering: .releasing) }
  }

  /// Nil while nothing is to be told. The tier keeps it.
  @inline(__always)
  var active: Unmanaged<DepartureWatch>? {
    isOn ? Unmanaged.passUnretained(self) : nil
  }
}

/// Blocks that have left under a shard's lock. They are given up when the lock is free: under it no
/// memory is freed, and no function of the host is called.
struct Departures: ~Copyable {
  typealias Places<Element> = InlineArray<16, Element>
  static var capacity: Int { Places<UInt>.count }

  private var blocks = Places<UInt>(repeating: 0)
  private var times = Places<Int64>(repeating: 0)
  private(set) var count = 0
  /// How many have been given up.
  private(set) var delivered = 0
  /// Whether the put has lowered the limit in force: once for all its steps.
  var hasPaid = false

  /// True if `onRead` and `onDeparture` want to know when the blocks were last read.
  let wantsTimes: Bool
  /// The tier keeps it.
  private let watch: Unmanaged<DepartureWatch>

  init(wantsTimes: Bool, watch: Unmanaged<DepartureWatch>) {
    self.wantsTimes = wantsTimes
    self.watch = watch
  }

  @inline(__always) var isEmpty: Bool { count == 0 }
  /// One place is kept for the block that a put replaces.
  @inline(__always) var isFull: Bool { room == 0 }
  @inline(__always) var room: Int { max(0, Departures.capacity - 1 - count) }

  /// Takes over the tier's reference. Blocks are 16-byte aligned: the cause fits below.
  @inline(__always)
  mutating func add(_ block: UnownedBlock, _ cause: DepartureCause, accessed: Int64) {
    blocks[count] = UInt(bitPattern: block.raw) | UInt(cause.rawValue)
    times[count] = accessed
    count += 1
    watch._withUnsafeGuaranteedRef { if $0.isOn { $0.onLeaving(block, cause) } }
  }

  /// A block that was read is about to be added.
  @inline(never)
  func noteRead(_ block: UnownedBlock, _ cause: DepartureCause, _ accessed: Int64, at now: Int64) {
    watch._withUnsafeGuaranteedRef { $0.onRead(block, cause, accessed, now) }
  }

  /// A dirty block is about to be added: from here on the store has it.
  @inline(never)
  func stage(_ block: UnownedBlock, accessed: Int64) {
    watch._withUnsafeGuaranteedRef { $0.onDirty(block, accessed) }
  }

  /// Calls `body` with each block and gives up its reference. No lock is held.
  @inline(__always)
  mutating func deliver(
    _ held: HeldCounts, _ body: (UnownedBlock, DepartureCause, Int64) -> Void
  ) {
    for i in 0..<count {
      let raw = UnsafeMutableRawPointer(bitPattern: blocks[i] & ~15).unsafelyUnwrapped
      let cause = DepartureCause(rawValue: UInt8(blocks[i] & 15)).unsafelyUnwrapped
      body(UnownedBlock(raw), cause, times[i])
      UnownedBlock(raw).depart(held)
      // No lock of the tier's is held. The key's stripe may be: then the block is freed later.
      UnownedBlock(raw).releaseInside()
    }
    delivered &+= count
    count = 0
  }
}
