import CSystem

/// The straight path: of the commonest read alone, a hit by a key of 8 to 16 bytes whose small
/// value goes to the caller's buffer, in a tier that one thread uses at a time.
///
/// A processor looks ahead for some 150 to 250 instructions. A read that is shorter than that has
/// its misses of the cache beside those of the next read. So this path calls nothing but in its
/// last step (the caller's, by what `copyStraight` returns), and keeps nothing over a call. What
/// leads to another path is asked before anything is changed.
extension HitPath {
  enum Course {
    /// The value is in the buffer.
    case done
    /// The same; and threads sleep for this lock, which has been released.
    case awaited(ShardLock)
    /// The same; and `HitPath.end` is left to do.
    case open(Ending)
    /// The value goes to the buffer from here first; otherwise the same.
    case large(Ending, UnsafeRawPointer, Int)
    /// No tier has an entry of this hash in the shard. The lock is still held.
    case absent(ShardLock, UInt64)
    /// Another path has to look, with this lock, which is still held. Nothing has been counted.
    case held(ShardLock)
    /// Another path has to look. No lock is held.
    case detour
  }

  /// What the end of a hit needs, whose lock is held: three words, which registers pass.
  struct Ending {
    fileprivate let lock: ShardLock
    fileprivate let hash: UInt64
    fileprivate let block: UnownedBlock
  }

  /// `isStraight` holds.
  @inline(__always)
  func copyStraight(_ key: UnsafeRawPointer, _ keySize: Int, to target: Target) -> Course {
    let (lock, localHash) = self.lock(shortHash(key, keySize))
    guard _fastPath(lock.takeAtOnce()) else { return .detour }
    let shard = lock.shard
    guard let route = shard.pointee.entries.table.route(localHash) else {
      return absent(lock, localHash, target)
    }
    let place: Table.Place
    switch shard.pointee.entries.table.nearGuess(route) {
    case .place(let found): place = found
    case .none: return absent(lock, localHash, target)
    case .later: return .held(lock)
    }
    let word = place.word
    guard _fastPath(!word.isTimed), let block = word.blockIfAny else { return .held(lock) }
    block.prefetchValue()
    // Once for each kind of header, so that its size is a number in the code.
    @inline(__always)
    func copy(_ size: Int, header: Int) -> Course {
      let shape = UnownedBlock.Shape(keySize: keySize, header: header, size: size)
      guard _fastPath(size <= target.capacity), _fastPath(block.keySize == keySize),
        _fastPath(block.hasKeyBytes(key, keySize, .short, shape))
      else { return .held(lock) }
      lock.line.pointee.hits.add(1)
      HitPath.noteUse(place, word, block, at: shard.pointee.clock)
      target.size.pointee = size
      let source = block.raw + shape.valueOffset
      let ending = Ending(lock: lock, hash: localHash, block: block)
      guard _fastPath(size <= HitPath.copyAtOnce) else {
        _ = lock.line.pointee.isTimeToTick
        return .large(ending, source, size)
      }
      hutch_copy_at_once(target.buffer, source, size)
      if _slowPath(lock.line.pointee.isTimeToTick)
        || _slowPath(localHash & shard.pointee.policy.adaptive.sampleMask == 0)
      {
        return .open(ending)
      }
      return lock.releaseAtOnce() ? .awaited(lock) : .done
    }
    if let size = block.plainSize(upTo: UInt32(HitPath.smallCopy)) {
      return copy(size, header: UnownedBlock.At.header)
    }
    guard let size = block.extendedEntrySize, size <= HitPath.smallCopy else { return .held(lock) }
    return copy(size, header: UnownedBlock.At.extendedHeader)
  }

  /// There is no entry, if the look was in the right shard: see `missAtOnce`.
  @inline(__always)
  private func absent(_ lock: ShardLock, _ hash: UInt64, _ target: Target) -> Course {
    isAll && isRight(lock) && target.capacity >= 0 ? .absent(lock, hash) : .held(lock)
  }

  /// Of a hit that was counted: the shard's clock, if its time has come, and a sample of the
  /// policy's. Releases the lock.
  @inline(never)
  static func end(_ ending: Ending) {
    let spot = ending.lock.reading
    if spot.line.pointee.isTimeNow {
      spot.line.pointee.path.readClock(spot)
      ending.block.stamp = spot.lock.shard.pointee.clock
    }
    if ending.hash & spot.lock.shard.pointee.policy.adaptive.sampleMask == 0 {
      tell(spot, ending.hash, ending.block)
    }
    spot.unlock()
  }

  /// The same, and before it the copy of a large value.
  @inline(__always)
  static func end(
    _ ending: Ending, copying source: UnsafeRawPointer, _ count: Int,
    to buffer: UnsafeMutableRawPointer
  ) {
    memcpy(buffer, source, count)
    end(ending)
  }

  /// A lock of a shard, and the size of a key of at most 16 bytes, in one word: registers pass six
  /// words, and the path for `Course.held` needs seven.
  struct HeldKey {
    private let bits: UInt

    @inline(__always)
    init(_ lock: ShardLock, _ keySize: Int) {
      // The locks are on cache lines.
      assert(UInt(bitPattern: lock.raw) & 63 == 0 && keySize < 64)
      bits = UInt(bitPattern: lock.raw) | UInt(bitPattern: keySize)
    }

    var lock: ShardLock {
      ShardLock(at: UnsafeMutableRawPointer(bitPattern: bits & ~63).unsafelyUnwrapped)
    }
    var size: Int { Int(bits & 63) }
  }

  /// The miss is counted, and the lock released.
  @inline(__always)
  static func endMiss(_ lock: ShardLock, _ hash: UInt64) {
    noteMiss(lock.reading, hash)
    lock.unlock()
  }
}
