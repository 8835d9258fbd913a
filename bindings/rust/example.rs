//! example.rs - a cache in a Rust program, through the C ABI alone: example [DIRECTORY]
//!
//!   rustc --edition 2021 -O example.rs    (-L DIRECTORY: where libhutch.so is)
//!
//! `Cache` has the calls that most services need: put, get, and load, in which one thread of all
//! that miss a key makes its value. The other functions of hutch.h are declared in the same way.

use std::error::Error;
use std::ffi::{CStr, CString};
use std::ops::Deref;
use std::os::raw::{c_char, c_int, c_void};
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// What is used here of hutch.h.
mod sys {
    use super::{c_char, c_int, c_void};

    pub const OK: c_int = 0;
    pub const NOT_FOUND: c_int = 1;

    // Types of which a program has pointers only.
    pub enum Cache {}
    pub enum Value {}
    pub enum Loading {}

    pub type Loader =
        unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut Loading) -> c_int;

    /// The first fields of hutch_put_options. struct_size tells that the others are not there.
    #[repr(C)]
    pub struct PutOptions {
        pub struct_size: usize,
        pub time_to_live: i64,
    }

    #[link(name = "hutch")]
    extern "C" {
        pub fn hutch_open(
            directory: *const c_char,
            options: *const c_void,
            out: *mut *mut Cache,
        ) -> c_int;
        pub fn hutch_close(cache: *mut Cache) -> c_int;
        pub fn hutch_put(
            cache: *mut Cache,
            key: *const c_void,
            key_size: usize,
            value: *const c_void,
            value_size: usize,
            options: *const PutOptions,
            result: *mut c_void,
        ) -> c_int;
        pub fn hutch_get(
            cache: *mut Cache,
            key: *const c_void,
            key_size: usize,
            out: *mut *mut Value,
        ) -> c_int;
        pub fn hutch_load(
            cache: *mut Cache,
            key: *const c_void,
            key_size: usize,
            loader: Loader,
            context: *mut c_void,
            options: *const c_void,
            out: *mut *mut Value,
        ) -> c_int;
        pub fn hutch_loading_fulfil(
            loading: *mut Loading,
            value: *const c_void,
            size: usize,
            options: *const PutOptions,
        ) -> c_int;
        pub fn hutch_loading_fail(loading: *mut Loading, code: i32, words: *const c_char) -> c_int;
        pub fn hutch_value_data(value: *const Value) -> *const c_void;
        pub fn hutch_value_size(value: *const Value) -> usize;
        pub fn hutch_value_release(value: *mut Value);
        pub fn hutch_error_words() -> *const c_char;
    }
}

/// The words of this thread's last failure: what was tried, and why it could not be done.
fn failure() -> Box<dyn Error> {
    let words = unsafe { CStr::from_ptr(sys::hutch_error_words()) };
    words.to_string_lossy().into_owned().into()
}

/// A counted reference to bytes that never change. It outlives the entry and the cache.
struct Value(*mut sys::Value);

unsafe impl Send for Value {}
unsafe impl Sync for Value {}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let size = unsafe { sys::hutch_value_size(self.0) };
        if size == 0 {
            return &[];
        }
        unsafe { std::slice::from_raw_parts(sys::hutch_value_data(self.0).cast(), size) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        unsafe { sys::hutch_value_release(self.0) }
    }
}

/// A cache. Any number of threads may use it at once.
struct Cache(*mut sys::Cache);

unsafe impl Send for Cache {}
unsafe impl Sync for Cache {}

impl Cache {
    /// None: a cache in memory only.
    fn open(directory: Option<&str>) -> Result<Cache, Box<dyn Error>> {
        let path = directory.map(CString::new).transpose()?;
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        let mut cache = null_mut();
        match unsafe { sys::hutch_open(path, null(), &mut cache) } {
            sys::OK => Ok(Cache(cache)),
            _ => Err(failure()),
        }
    }

    /// When the call returns, the value survives a kill. None: it lives as long as the cache's
    /// limits let it.
    fn put(&self, key: &[u8], value: &[u8], live: Option<Duration>) -> Result<(), Box<dyn Error>> {
        let options = sys::PutOptions {
            struct_size: std::mem::size_of::<sys::PutOptions>(),
            time_to_live: live.map_or(0, |live| live.as_nanos().clamp(1, i64::MAX as u128) as i64),
        };
        let status = unsafe {
            let (key, key_size) = (key.as_ptr().cast(), key.len());
            let (value, size) = (value.as_ptr().cast(), value.len());
            sys::hutch_put(self.0, key, key_size, value, size, &options, null_mut())
        };
        // HUTCH_PARTIAL, above 0: one tier has the value.
        if status < 0 {
            return Err(failure());
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, Box<dyn Error>> {
        let mut value = null_mut();
        match unsafe { sys::hutch_get(self.0, key.as_ptr().cast(), key.len(), &mut value) } {
            sys::OK => Ok(Some(Value(value))),
            sys::NOT_FOUND => Ok(None),
            _ => Err(failure()),
        }
    }

    /// The value of a key. If there is none, `make` makes it, or that of another thread which
    /// asked for the key before.
    fn load<F>(&self, key: &[u8], make: F) -> Result<Value, Box<dyn Error>>
    where
        F: Fn() -> Result<Vec<u8>, Box<dyn Error>>,
    {
        // The library calls this on the stack of hutch_load, so `make` may borrow. A panic must
        // not unwind through the library: it becomes a failure of the load.
        unsafe extern "C" fn call<F>(
            make: *mut c_void,
            _key: *const c_void,
            _key_size: usize,
            loading: *mut sys::Loading,
        ) -> c_int
        where
            F: Fn() -> Result<Vec<u8>, Box<dyn Error>>,
        {
            let make = AssertUnwindSafe(&*make.cast::<F>());
            let made = catch_unwind(|| make().map_err(|error| error.to_string()));
            match made.unwrap_or_else(|_| Err("the loader panicked".into())) {
                Ok(value) => {
                    let (start, size) = (value.as_ptr().cast(), value.len());
                    sys::hutch_loading_fulfil(loading, start, size, null());
                }
                Err(words) => {
                    let words = CString::new(words).unwrap_or_default();
                    sys::hutch_loading_fail(loading, 0, words.as_ptr());
                }
            }
            sys::OK
        }
        let mut value = null_mut();
        let status = unsafe {
            let (key, key_size) = (key.as_ptr().cast(), key.len());
            let context = &make as *const F as *mut c_void;
            sys::hutch_load(
                self.0,
                key,
                key_size,
                call::<F>,
                context,
                null(),
                &mut value,
            )
        };
        match status {
            sys::OK => Ok(Value(value)),
            _ => Err(failure()),
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        unsafe { sys::hutch_close(self.0) };
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1);
    let cache = Cache::open(directory.as_deref())?;

    cache.put(b"greeting", b"hello", None)?;
    cache.put(b"token", b"s3cret", Some(Duration::from_secs(60)))?;
    if let Some(value) = cache.get(b"greeting")? {
        println!("{}", String::from_utf8_lossy(&value));
    }

    // Of eight threads that miss the key, one makes the value.
    let made = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let answer = cache.load(b"answer", || {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(b"42".to_vec())
                });
                assert_eq!(*answer.expect("the load failed"), *b"42");
            });
        }
    });
    println!("made {} times", made.load(Ordering::Relaxed));

    // A failure of the loader, and a panic, are errors of the load.
    let refused = cache.load(b"refused", || Err("the server does not answer".into()));
    println!("{}", refused.err().expect("a value was made"));
    set_hook(Box::new(|_| {})); // The panic is meant to be: no words about it.
    assert!(cache.load(b"broken", || panic!("in a loader")).is_err());
    assert!(cache.get(b"broken")?.is_none());
    Ok(())
}
