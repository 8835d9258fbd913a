/// Keys, or values, by index.
struct ManyBytes {
  let pointers: UnsafePointer<UnsafeRawPointer?>?
  let sizes: UnsafePointer<Int>?
  let count: Int

  @inline(__always)
  subscript(_ index: Int) -> Bytes {
    Bytes(start: pointers.unsafelyUnwrapped[index], count: sizes.unsafelyUnwrapped[index])
  }
}
