import CSystem

/// The short path of a read that copies the value.
extension HitPath {
  /// A value up to this size is copied with the lock held: that is cheaper than a reference.
  static var smallCopy: Int { 4096 }
  /// A value up to this size is copied without a call.
  static var copyAtOnce: Int { Int(HUTCH_COPY_AT_ONCE) }

  /// The result of a look, as hutch_found has it.
  struct Result {
    var size: Int
    var extendedSize: Int
    var value: OpaquePointer?
    /// Before the look, of the value that the caller has, which is not copied; 0: of none.
    var version: UInt64
  }

  /// Where a value goes, and the sizes of what was copied: four words, which registers pass.
  struct Target {
    let buffer: UnsafeMutableRawPointer
    let capacity: Int
    let size: UnsafeMutablePointer<Int>
    /// Not nil: the extended data go behind the value. A constant of fast callers, as is `KeySize`.
    var found: UnsafeMutablePointer<Result>?

    /// False: not all of it fits, or it is large.
    @inline(__always)
    fileprivate func take(_ hit: Hit, _ kind: KeySize, from path: HitPath) -> Bool {
      var extended = 0
      if found != nil && _slowPath(!hit.block.isPlain) { extended = hit.block.dataSize }
      let count = hit.shape.size &+ extended
      guard _fastPath(count <= capacity) else { return false }
      if kind != .any && _fastPath(count <= HitPath.copyAtOnce) {
        let isKnown = isKnown(hit)
        note(hit, extended, from: path)
        if !isKnown {
          hutch_copy_at_once(buffer, hit.block.raw + hit.shape.valueOffset, count)
        }
        return true
      }
      guard _fastPath(count <= HitPath.smallCopy) else { return false }
      note(hit, extended, from: path)
      memcpy(buffer, hit.block.raw + hit.shape.valueOffset, count)
      return true
    }

    /// Whether the caller has the value. A damaged directory may have an entry of version 0.
    @inline(__always)
    private func isKnown(_ hit: Hit) -> Bool {
      guard let known = found?.pointee.version else { return false }
      return known != 0 && known == hit.block.version
    }

    @inline(__always)
    private func note(_ hit: Hit, _ extended: Int, from path: HitPath) {
      path.note(hit)
      size.pointee = hit.shape.size
      found?.pointee.extendedSize = extended
      found?.pointee.version = hit.block.version
    }
  }

  /// Copies a value, or leaves the target as it is.
  @inline(__always)
  func copy(
    _ key: UnsafeRawPointer, _ keySize: Int, _ kind: KeySize, to target: Target
  ) -> Outcome {
    find(key, keySize, kind, { target.take($0, kind, from: self) }) {
      copySlowly(key, keySize, $0, to: target)
    }
  }

  /// A key of any size. One copy of the path for all such reads.
  @inline(never) @_optimize(speed)
  func copyAnyhow(_ key: UnsafeRawPointer, _ keySize: Int, to target: Target) -> Outcome {
    copy(key, keySize, .any, to: target)
  }

  @inline(never)
  @_optimize(speed)
  func copySlowly(
    _ key: UnsafeRawPointer, _ keySize: Int, _ spot: Spot, to target: Target
  ) -> Outcome {
    findSlowly(key, keySize, spot) { target.take($0, .any, from: self) }
  }
}
