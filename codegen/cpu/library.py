"""Kernels for processors as files: shared libraries and object files that describe themselves.

Names of the C library, libm, pthreads and OpenMP, which functions in files cannot have.

A program that links a library with such a function calls it in the place of the system's: `malloc`
before `main`, say. The names are those that glibc and libgomp export, those that C23 adds, and
macros of C23. Names that begin with an underscore are refused anyway, see `is_function_name`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import BuildError
from ...base.files import File
from ...runtime.artifact import ProgramContent, artifact_files, together
from ...runtime.header import Declared, WeightsNote, c_header
from ...runtime.manifest import MARK, Form, Provenance, WeightsSlice, description
from ...runtime.signature import Signature
from ...runtime.weights_file import weights_path
from ...target import CpuTarget
from ..compiled import Compiled
from .archive import archive, indexed, members
from .generator import runs_parallel
from .linking import link, tool, version
from .linking import linker as find_linker
from .object_file import read_object, renamed, with_constant

_log = logging.getLogger(__name__)


def library_files(
    programs: Sequence[tuple[Compiled, Provenance]],
    path: Path,
    toolchain: Mapping[str, str],
    linker: str | None = None,
) -> tuple[File, ...]:
    """A shared library at `path`, its C header, its manifest, and the weights of models.

    A partitioned model is in no header: C programs cannot run the parts of other providers.

    Raises `BuildError` where there is no linker, and for the name of a function of the system.
    """
    kernels = [compiled for compiled, _ in programs]
    target = CpuTarget.of(kernels[0].target)
    code = link(_described(kernels, linked=True), target, linker)
    versions = {**toolchain, "linker": version(*tool(find_linker(target, linker)))}
    return _artifact(programs, File(path, code, 0o777), None, versions)


def object_files(
    programs: Sequence[tuple[Compiled, Provenance]], path: Path, toolchain: Mapping[str, str]
) -> tuple[File, ...]:
    """An object file at `path`, of a model or several programs an archive of them, with its C
    header, its manifest, and the weights of models.

    There is no manifest for code in a format that carries no description of itself, see
    `with_constant`.

    Raises `BuildError` as `library_files` does.
    """
    kernels = [compiled for compiled, _ in programs]
    code = indexed(_described(kernels, linked=False), lambda code: read_object(code).defined)
    form: Form = "object file" if members(code) == [code] else "archive"
    return _artifact(programs, File(path, code), form, toolchain)


def _artifact(
    programs: Sequence[tuple[Compiled, Provenance]],
    code: File,
    form: Form | None,
    toolchain: Mapping[str, str],
) -> tuple[File, ...]:
    kernels = [compiled for compiled, _ in programs]
    weights, slices = together([compiled.weights for compiled in kernels])
    header = _header(code.path, kernels, slices, "-lpthread" if form is None else "-lgomp")
    if form is not None and MARK not in bytes(code.content):
        assert header is not None, "parts of other providers are no object code"
        beside = [] if weights is None else [File(weights_path(code.path), weights.data)]
        return code, *beside, header
    contents = [
        ProgramContent(
            compiled.signature, _needs(compiled, linked=form is None), provenance,
            compiled.weights, compiled.guards, compiled.partition,
        )
        for compiled, provenance in programs
    ]  # fmt: skip
    target = CpuTarget.of(kernels[0].target)
    return artifact_files(code, target, toolchain, contents, header, form=form)


def check_path(path: Path) -> None:
    """Raise `BuildError` for a path that the code cannot have."""
    if path.suffix == ".h":
        raise BuildError(
            "cannot write {0}: its C header has that name, too",
            path,
            hint="name the library matmul.so, for instance, or the object file matmul.o",
        )


def _check_names(signature: Signature) -> None:
    for name in signature.symbols:
        if is_system_name(name):
            raise BuildError(
                "a kernel in a file cannot be named {0}: a program that links it would call it in "
                "the place of the {0} of the system",
                name,
                hint=f"give the program another name, such as {signature.name}_kernel; records in "
                "a database hold under any name",
            )


def _needs(compiled: Compiled, *, linked: bool) -> dict[str, Any]:
    """What the runtime of processors asks a manifest for (`TargetRuntime.needs`)."""
    needs: dict[str, Any] = {} if compiled.profiled is None else {"profiled": compiled.profiled}
    return needs | ({"openmp": True} if runs_parallel(compiled) and not linked else {})


def _own(compiled: Compiled, symbol: str) -> str:
    """The name in files of a symbol of a kernel that an entry calls.

    Models have equal kernels under equal names, with other schedules, and a program may have
    several models.
    """
    return f"{compiled.signature.name}.{symbol}"


def _header(
    path: Path, programs: Sequence[Compiled], slices: Sequence[WeightsSlice | None], threads: str
) -> File | None:
    """The C header of the programs that C can call; `None` where there are none.

    Those that run in `threads` are linked with this library.
    """
    file = weights_path(path).name
    declared = [
        Declared(
            compiled.signature,
            WeightsNote(file, held.offset, held.size) if held is not None and held.size else None,
            compiled.guards,
        )
        for compiled, held in zip(programs, slices, strict=True)
        if compiled.partition is None
    ]
    if not declared:
        return None
    name = declared[0].signature.name
    if len(programs) > 1:
        name = re.sub(r"\W|^(?=\d)", "_", path.stem, flags=re.ASCII)
    target = CpuTarget.of(programs[0].target)
    parallel = any(runs_parallel(compiled) for compiled in programs)
    text = c_header(name, path.name, target, declared, [threads] if parallel else [])
    return File(path.with_suffix(".h"), text.encode())


def _described(programs: Sequence[Compiled], *, linked: bool) -> bytes:
    """The object code of programs with the description of each in it."""
    names = Counter(name for compiled in programs for name in _functions(compiled))
    twice = next((name for name, times in names.items() if times > 1), None)
    if twice is not None:
        raise BuildError(
            "two functions of the file are called {0}: of programs, of what packs their operands, "
            "or of parts of models", twice,
            hint="give a program another name: tw.build_library({'first': ...}, ...)", name=twice,
        )  # fmt: skip
    return archive(
        [code for compiled in programs for code in members(_described_one(compiled, linked=linked))]
    )


def _functions(compiled: Compiled) -> Iterator[str]:
    """The names of the functions of a program that are called by name."""
    yield from compiled.signature.symbols
    for part in () if compiled.partition is None else compiled.partition[0].parts:
        if part.function is not None:
            yield from part.function.signature.symbols


def _described_one(compiled: Compiled, *, linked: bool) -> bytes:
    signature, target = compiled.signature, CpuTarget.of(compiled.target)
    _check_names(signature)
    stored = None if compiled.partition is None else compiled.partition[0]
    text = description(signature, target, target.features, _needs(compiled, linked=linked), stored)
    first, *others = members(compiled.image)
    if others:
        defined = frozenset[str]().union(*(read_object(code).defined for code in others))
        names = {n: _own(compiled, n) for n in defined.difference(signature.symbols)}
        first, *others = (renamed(code, names) for code in (first, *others))
    described = with_constant(first, f"{signature.name}.description", text)
    if described is None:
        _log.warning(
            "%s carries no description: it is neither ELF of 64 bits nor WebAssembly",
            signature.name,
        )
        return compiled.image
    return archive([described, *others])


_LIBRARY = """
EOF FILE I NULL a64l abort abs accept accept4 access acct addmntent addseverity adjtime adjtimex
aio_cancel aio_error aio_fsync aio_init aio_read aio_return aio_suspend aio_write alarm
aligned_alloc alloca alphasort arc4random arc4random_buf arc4random_uniform arch_prctl asctime
asprintf assert at_quick_exit atexit atof atoi atol atoll backtrace backtrace_symbols
backtrace_symbols_fd basename bcmp bcopy bind bind_textdomain_codeset bindresvport bindtextdomain
brk bsd_signal bsearch btowc bzero c16rtomb c32rtomb c8rtomb call_once calloc
canonicalize_file_name capget capset catclose catgets catopen cfgetispeed cfgetospeed cfmakeraw
cfsetispeed cfsetospeed cfsetspeed chdir chflags chmod chown chroot ckd_add ckd_mul ckd_sub
clearenv clearerr clock clock_adjtime clock_getcpuclockid clock_getres clock_gettime
clock_nanosleep clock_settime clone close close_range closedir closefrom closelog complex confstr
connect copy_file_range creat ctermid ctime cuserid daemon daylight dcgettext dcngettext
delete_module dgettext difftime dirfd dirname div dl_iterate_phdr dladdr dladdr1 dlclose dlerror
dlfunc dlinfo dlmopen dlopen dlsym dlvsym dn_comp dn_expand dn_skipname dngettext dprintf drand48
dup dup2 dup3 duplocale dysize eaccess ecvt endaliasent endfsent endgrent endhostent endmntent
endnetent endnetgrent endprotoent endpwent endrpcent endservent endsgent endspent endttyent
endusershell endutent endutxent environ erand48 err errno error error_at_line error_message_count
error_one_per_line error_print_progname errx ether_aton ether_hostton ether_line ether_ntoa
ether_ntohost euidaccess eventfd eventfd_read eventfd_write execl execle execlp execv execve
execveat execvp execvpe exit explicit_bzero faccessat fallocate fchdir fchflags fchmod fchmodat
fchown fchownat fclose fcloseall fcntl fcvt fdatasync fdopen fdopendir feof ferror fexecve fflush
ffs ffsl ffsll fgetc fgetgrent fgetpos fgetpwent fgets fgetsgent fgetspent fgetwc fgetws fgetxattr
fileno flistxattr flock flockfile fmemopen fmtmsg fnmatch fopen fopencookie fork forkpty fpathconf
fpclassify fprintf fpurge fputc fputs fputwc fputws fread free free_aligned_sized free_sized
freeaddrinfo freeifaddrs freelocale fremovexattr freopen fscanf fsconfig fseek fseeko fsetpos
fsetxattr fsmount fsopen fspick fstat fstatat fstatfs fstatvfs fsync ftell ftello ftime ftok
ftruncate ftrylockfile ftw funlockfile futimens futimes futimesat fwide fwprintf fwrite fwscanf
gai_cancel gai_error gai_strerror gai_suspend gcvt get_avphys_pages get_current_dir_name get_nprocs
get_nprocs_conf get_phys_pages getaddrinfo getaddrinfo_a getaliasbyname getaliasent getauxval getc
getchar getcontext getcpu getcwd getdate getdate_err getdelim getdents64 getdirentries
getdomainname getdtablesize getegid getentropy getenv geteuid getfsent getfsfile getfsspec getgid
getgrent getgrgid getgrnam getgrouplist getgroups gethostbyaddr gethostbyname gethostbyname2
gethostent gethostid gethostname getifaddrs getipv4sourcefilter getitimer getline getloadavg
getlocalename_l getlogin getmntent getnameinfo getnetbyaddr getnetbyname getnetent getnetgrent
getopt getopt_long getopt_long_only getpagesize getpass getpeername getpgid getpgrp getpid getppid
getpriority getprotobyname getprotobynumber getprotoent getpt getpw getpwent getpwnam getpwuid
getrandom getresgid getresuid getrlimit getrpcbyname getrpcbynumber getrpcent getrusage gets
getservbyname getservbyport getservent getsgent getsgnam getsid getsockname getsockopt
getsourcefilter getspent getspnam getsubopt gettext gettid gettimeofday getttyent getttynam getuid
getusershell getutent getutid getutline getutmp getutmpx getutxent getutxid getutxline getw getwc
getwchar getwd getxattr glob glob_pattern_p globfree gmtime gnu_dev_major gnu_dev_makedev
gnu_dev_minor gnu_get_libc_release gnu_get_libc_version grantpt group_member gsignal gtty h_errlist
h_nerr hasmntopt hcreate hdestroy herror hsearch hstrerror htonl htons iconv iconv_close iconv_open
if_freenameindex if_indextoname if_nameindex if_nametoindex imaginary imaxabs imaxdiv in6addr_any
in6addr_loopback index init_module initgroups initstate innetgr insque ioctl ioperm iopl iruserok
iruserok_af isalnum isalpha isascii isatty isblank iscanonical iscntrl isctype isdigit iseqsig
isfdtype isfinite isgraph isgreater isgreaterequal isinf isinff isinfl isless islessequal
islessgreater islower isnan isnanf isnanl isnormal isprint ispunct issignaling isspace issubnormal
isunordered isupper iswalnum iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower
iswprint iswpunct iswspace iswupper iswxdigit isxdigit iszero jrand48 kill kill_dependency killpg
klogctl l64a labs lchmod lchown lckpwdf lcong48 ldiv lfind lgetxattr link linkat lio_listio listen
listxattr llabs lldiv llistxattr localeconv localtime lockf login login_tty logout logwtmp longjmp
lrand48 lremovexattr lsearch lseek lsetxattr lstat lutimes madvise main makecontext mallinfo
mallinfo2 malloc malloc_info malloc_stats malloc_trim malloc_usable_size mallopt mblen mbrlen
mbrtoc16 mbrtoc32 mbrtoc8 mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc mcheck
mcheck_check_all mcheck_pedantic mcount memalign memalignment memccpy memchr memcmp memcpy
memfd_create memfrob memmem memmove mempcpy memrchr memset memset_explicit mincore mkdir mkdirat
mkdtemp mkfifo mkfifoat mknod mknodat mkostemp mkostemps mkstemp mkstemps mktemp mktime mlock
mlock2 mlockall mmap modify_ldt moncontrol monstartup mount mount_setattr move_mount mprobe
mprotect mq_close mq_getattr mq_notify mq_open mq_receive mq_send mq_setattr mq_timedreceive
mq_timedsend mq_unlink mrand48 mremap msgctl msgget msgrcv msgsnd msync mtrace munlock munlockall
munmap muntrace name_to_handle_at nanosleep newlocale nftw ngettext nice nl_langinfo noreturn
nrand48 ns_name_compress ns_name_ntop ns_name_pack ns_name_pton ns_name_skip ns_name_uncompress
ns_name_unpack ntohl ntohs ntp_adjtime ntp_gettime ntp_gettimex offsetof on_exit once_flag open
open_by_handle_at open_memstream open_tree open_wmemstream openat opendir openlog openpty optarg
opterr optind optopt parse_printf_format pathconf pause pclose perror personality pipe pipe2
pivot_root poll popen ppoll prctl pread preadv preadv2 preadv64v2 printf printf_size
printf_size_info prlimit process_madvise process_mrelease process_vm_readv process_vm_writev profil
program_invocation_name program_invocation_short_name pselect psiginfo psignal ptrace ptsname putc
putchar putenv putgrent putpwent puts putsgent putspent pututline pututxline putw putwc putwchar
pvalloc pwrite pwritev pwritev2 pwritev64v2 qecvt qfcvt qgcvt qsort quick_exit quotactl raise rand
random rawmemchr rcmd rcmd_af re_comp re_compile_fastmap re_compile_pattern re_exec re_match
re_match_2 re_max_failures re_search re_search_2 re_set_registers re_set_syntax re_syntax_options
read readahead readdir readlink readlinkat readv realloc reallocarray realpath reboot recv recvfrom
recvmmsg recvmsg regcomp regerror regexec regfree register_printf_function register_printf_modifier
register_printf_specifier register_printf_type remap_file_pages remove removexattr remque rename
renameat renameat2 res_dnok res_hnok res_mailok res_mkquery res_nmkquery res_nquery
res_nquerydomain res_nsearch res_nsend res_ownok res_query res_querydomain res_search res_send
revoke rewind rewinddir rexec rexec_af rexecoptions rindex rmdir rpmatch rresvport rresvport_af
ruserok ruserok_af ruserpass sbrk scandir scandirat scanf secure_getenv seed48 seekdir select
semctl semget semop semtimedop send sendfile sendmmsg sendmsg sendto setaliasent setbuf setbuffer
setcontext setdomainname setegid setenv seteuid setfsent setfsgid setfsuid setgid setgrent
setgroups sethostent sethostid sethostname setipv4sourcefilter setitimer setjmp setlinebuf
setlocale setlogin setlogmask setmntent setnetent setnetgrent setns setpgid setpgrp setpriority
setprotoent setpwent setregid setresgid setresuid setreuid setrlimit setrpcent setservent setsgent
setsid setsockopt setsourcefilter setspent setstate settimeofday setttyent setuid setusershell
setutent setutxent setvbuf setxattr sgetsgent sgetspent shm_open shm_unlink shmat shmctl shmdt
shmget shutdown sig2str sigabbrev_np sigaction sigaddset sigaltstack sigandset sigblock sigdelset
sigdescr_np sigemptyset sigfillset siggetmask sighold sigignore siginterrupt sigisemptyset
sigismember siglongjmp signal signalfd signbit sigorset sigpause sigpending sigprocmask sigqueue
sigrelse sigreturn sigset sigsetjmp sigsetmask sigstack sigsuspend sigtimedwait sigwait sigwaitinfo
sleep snprintf sockatmark socket socketpair splice sprintf sprofil srand srand48 srandom sscanf
ssignal stat statfs statvfs statx std stderr stdin stdout stpcpy stpncpy str2sig strcasecmp
strcasestr strcat strchr strchrnul strcmp strcoll strcpy strcspn strdup strerror strerrordesc_np
strerrorname_np strfmon strfromd strfromf strfromf128 strfromf32 strfromf32x strfromf64x strfroml
strfry strftime strlcat strlcpy strlen strncasecmp strncat strncmp strncpy strndup strnlen strpbrk
strptime strrchr strsep strsignal strspn strstr strtod strtof strtof128 strtof32 strtof32x
strtof64x strtoimax strtok strtol strtold strtoll strtoq strtoul strtoull strtoumax strtouq
strverscmp strxfrm stty swab swapcontext swapoff swapon swprintf swscanf symlink symlinkat sync
sync_file_range syncfs syscall sysconf sysinfo syslog system sysv_signal tcdrain tcflow tcflush
tcgetattr tcgetpgrp tcgetsid tcgetwinsize tcsendbreak tcsetattr tcsetpgrp tcsetwinsize tdelete
tdestroy tee telldir tempnam textdomain tfind tgkill time timegm timelocal timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times timespec_get timespec_getres timezone tmpfile tmpnam toascii tolower toupper
towctrans towlower towupper truncate tsearch ttyname ttyslot twalk tzname tzset ualarm ulckpwdf
ulimit umask umount umount2 uname ungetc ungetwc unlink unlinkat unlockpt unreachable unsetenv
unshare updwtmp updwtmpx uselocale usleep utime utimensat utimes utmpname utmpxname va_arg va_copy
va_end va_start valloc vasprintf vdprintf verr verrx versionsort vfork vfprintf vfscanf vfwprintf
vfwscanf vhangup vlimit vmsplice vprintf vscanf vsnprintf vsprintf vsscanf vswprintf vswscanf
vsyslog vwarn vwarnx vwprintf vwscanf wait wait3 wait4 waitid waitpid warn warnx wcpcpy wcpncpy
wcrtomb wcscasecmp wcscat wcschr wcschrnul wcscmp wcscoll wcscpy wcscspn wcsdup wcsftime wcslcat
wcslcpy wcslen wcsncasecmp wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs
wcsspn wcsstr wcstod wcstof wcstof128 wcstof32 wcstof32x wcstof64x wcstoimax wcstok wcstol wcstold
wcstoll wcstombs wcstoq wcstoul wcstoull wcstoumax wcstouq wcswcs wcswidth wcsxfrm wctob wctomb
wctrans wctype wcwidth wmemchr wmemcmp wmemcpy wmemmove wmempcpy wmemset wordexp wordfree wprintf
write writev wscanf
"""
"""Also with `64`, `_r`, `_l` and `_unlocked` behind them."""
_MATH = """
acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi cabs cacos cacosh canonicalize
carg casin casinh catan catanh cbrt ccos ccosh ceil cexp cimag clog clog10 compoundn conj copysign
cos cosh cospi cpow cproj creal csin csinh csqrt ctan ctanh daddl ddivl dfmal dmull drem dsqrtl
dsubl erf erfc exp exp10 exp10m1 exp2 exp2m1 expm1 f32addf128 f32addf32x f32addf64 f32addf64x
f32divf128 f32divf32x f32divf64 f32divf64x f32fmaf128 f32fmaf32x f32fmaf64 f32fmaf64x f32mulf128
f32mulf32x f32mulf64 f32mulf64x f32sqrtf128 f32sqrtf32x f32sqrtf64 f32sqrtf64x f32subf128
f32subf32x f32subf64 f32subf64x f32xaddf128 f32xaddf64 f32xaddf64x f32xdivf128 f32xdivf64
f32xdivf64x f32xfmaf128 f32xfmaf64 f32xfmaf64x f32xmulf128 f32xmulf64 f32xmulf64x f32xsqrtf128
f32xsqrtf64 f32xsqrtf64x f32xsubf128 f32xsubf64 f32xsubf64x f64addf128 f64addf64x f64divf128
f64divf64x f64fmaf128 f64fmaf64x f64mulf128 f64mulf64x f64sqrtf128 f64sqrtf64x f64subf128
f64subf64x f64xaddf128 f64xdivf128 f64xfmaf128 f64xmulf128 f64xsqrtf128 f64xsubf128 fabs fadd fdim
fdiv feclearexcept fedisableexcept feenableexcept fegetenv fegetexcept fegetexceptflag fegetmode
fegetround feholdexcept feraiseexcept fesetenv fesetexcept fesetexceptflag fesetmode fesetround
fetestexcept fetestexceptflag feupdateenv ffma finite floor fma fmax fmaximum fmaximum_mag
fmaximum_mag_num fmaximum_num fmaxmag fmin fminimum fminimum_mag fminimum_mag_num fminimum_num
fminmag fmod fmul frexp fromfp fromfpx fsqrt fsub gamma getpayload hypot ilogb j0 j1 jn ldexp
lgamma llogb llrint llround log log10 log10p1 log1p log2 log2p1 logb logp1 lrint lround modf nan
nearbyint nextafter nextdown nexttoward nextup pow pown powr remainder remquo rint rootn round
roundeven rsqrt scalb scalbln scalbn setpayload setpayloadsig signgam significand sin sincos sinh
sinpi sqrt tan tanh tanpi tgamma totalorder totalordermag trunc ufromfp ufromfpx y0 y1 yn
"""
"""Also with the letters of a type behind them: `expf`, `expf128`."""
_PREFIXES = """
GOACC_ GOMP_ acc_ argp_ argz_ cnd_ envz_ epoll_ fanotify_ fts64_ fts_ inet6_ inet_ inotify_ kmp_
kmpc_ mtx_ obstack_ omp_ ompt_ pidfd_ pkey_ posix_ pthread_ sched_ sem_ stdc_ thrd_ tss_
"""
_NAMES = re.compile(
    rf"({'|'.join(_LIBRARY.split())})(64)?(_r|_l|_unlocked)?"
    rf"|({'|'.join(_MATH.split())})(f|l|f16|f32x?|f64x?|f128)?(_r)?"
    rf"|({'|'.join(_PREFIXES.split())})\w*"
)


def is_system_name(name: str) -> bool:
    """Whether a function of the system's libraries is called so."""
    return _NAMES.fullmatch(name) is not None
