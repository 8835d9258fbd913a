import Synchronization

/// The table's word for an entry, in the cache line that a lookup reads first: where its
/// block is, enough of its hash to tell it from its neighbours, and what a hit changes.
///
///     63..20  the block's address, without the 4 bits that are zero
///     19..5   tag: 15 bits of the hash, see Table
///     4       timed: the entry may expire
///     3       backed: the disk tier has this version too
///     2       kind: the entry is a host's object, in a key space of its own
///     1..0    uses: the policy's count of hits, stops at 3
///
/// All zero: vacant.
struct Word {
  var bits: UInt64

  static let vacant = Word(bits: 0)
  static let tagShift: UInt64 = 5
  static let tagMask: UInt64 = 0x7FFF << 5
  static let flagMask: UInt64 = 31
  static let mostUses: UInt64 = 3

  private static let usesMask: UInt64 = 3
  static let objectBit: UInt64 = 1 << 2
  private static let backedBit: UInt64 = 1 << 3
  private static let timedBit: UInt64 = 1 << 4

  @inline(__always) init(bits: UInt64) { self.bits = bits }

  /// User space ends below 2^48 on the machines that Hutch is for, and the heap aligns to 16.
  @inline(__always)
  init(_ block: UnownedBlock, isTimed: Bool, isBacked: Bool, isObject: Bool) {
    bits =
      Word.address(block) | (isTimed ? Word.timedBit : 0) | (isBacked ? Word.backedBit : 0)
      | (isObject ? Word.objectBit : 0)
  }

  @inline(__always)
  private static func address(_ block: UnownedBlock) -> UInt64 {
    let address = UInt64(UInt(bitPattern: block.raw))
    assert(address >> 48 == 0 && address & 15 == 0)
    return address << 16
  }

  @inline(__always) var isVacant: Bool { bits == 0 }

  @inline(__always)
  var block: UnownedBlock {
    UnownedBlock(
      UnsafeMutableRawPointer(bitPattern: Word.address(in: bits, ~15)).unsafelyUnwrapped)
  }

  /// Nil if the word is vacant.
  @inline(__always)
  var blockIfAny: UnownedBlock? {
    UnsafeMutableRawPointer(bitPattern: Word.address(in: bits, ~15)).map { UnownedBlock($0) }
  }

  /// The content of the upper 48 bits, under a mask of its lowest. On x86-64, where addresses of
  /// user space end below 2^47, an arithmetic shift does as well, and leaves a mask that is part of
  /// the instruction.
  @inline(__always)
  static func address(in bits: UInt64, _ mask: Int) -> UInt {
    #if arch(x86_64)
      UInt(bitPattern: Int(bitPattern: UInt(bits)) &>> 16 & mask)
    #else
      UInt(bits) &>> 16 & UInt(bitPattern: mask)
    #endif
  }

  @inline(__always) var tag: UInt64 { (bits & Word.tagMask) >> Word.tagShift }
  @inline(__always) var flags: UInt64 { bits & Word.flagMask }
  @inline(__always) var isTimed: Bool { bits & Word.timedBit != 0 }
  @inline(__always) var isBacked: Bool { bits & Word.backedBit != 0 }

  @inline(__always) var isObject: Bool { bits & Word.objectBit != 0 }

  @inline(__always)
  var uses: UInt64 {
    get { bits & Word.usesMask }
    set { bits = bits & ~Word.usesMask | newValue }
  }

  @inline(__always)
  func with(isTimed: Bool) -> Word {
    Word(bits: isTimed ? bits | Word.timedBit : bits & ~Word.timedBit)
  }

  @inline(__always)
  func with(isBacked: Bool) -> Word {
    Word(bits: isBacked ? bits | Word.backedBit : bits & ~Word.backedBit)
  }

  /// The same entry with another block: tag and the policy's bits stay.
  @inline(__always)
  func with(_ block: UnownedBlock) -> Word {
    Word(bits: bits & (Word.tagMask | Word.flagMask) | Word.address(block))
  }

  @inline(__always)
  func with(tag: UInt64) -> Word {
    Word(bits: bits & ~Word.tagMask | tag << Word.tagShift)
  }
}

/// Reads that share a shard (ShardLock.swift) look at words whose uses others of them change.
extension UnsafeMutablePointer<Word> {
  @inline(__always)
  private var atomic: UnsafeMutablePointer<Atomic<UInt64>> {
    UnsafeMutableRawPointer(self).assumingMemoryBound(to: Atomic<UInt64>.self)
  }
  @inline(__always) var word: Word { Word(bits: atomic.pointee.load(ordering: .relaxed)) }
  @inline(__always)
  func set(_ word: Word) { atomic.pointee.store(word.bits, ordering: .relaxed) }
}
