BEGIN TRANSACTION;
CREATE TABLE environment (
	id VARCHAR(64) NOT NULL, 
	facts TEXT NOT NULL, 
	CONSTRAINT pk_environment PRIMARY KEY (id)
);
INSERT INTO "environment" VALUES('7da10b4a43f854b32b3aa0deb5f2fb0598ed31df41304a9980d30c390de48019','{"host":"a","load":0.25,"numa":[0,1]}');
CREATE TABLE machine (
	id VARCHAR(64) NOT NULL, 
	target VARCHAR(64) NOT NULL, 
	rates TEXT NOT NULL, 
	odd TEXT NOT NULL, 
	created DATETIME NOT NULL, 
	CONSTRAINT pk_machine PRIMARY KEY (id), 
	CONSTRAINT fk_machine_target FOREIGN KEY(target) REFERENCES target (id)
);
INSERT INTO "machine" VALUES('a8c7eec6e6b3228577fe696b630539bd68a1da2bf4a1a4e1fce2da837bae59d1','212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87','{"clock":2600000000.0,"fma":35000000000.0}','["the clock varied by 12%"]','2026-03-01 12:00:00.123456');
CREATE TABLE measurement (
	id VARCHAR(64) NOT NULL, 
	session VARCHAR(64) NOT NULL, 
	schedule VARCHAR(64) NOT NULL, 
	workload VARCHAR(64) NOT NULL, 
	target VARCHAR(64) NOT NULL, 
	toolchain VARCHAR(64) NOT NULL, 
	environment VARCHAR(64) NOT NULL, 
	outcome VARCHAR(20) NOT NULL, 
	seconds DOUBLE, 
	samples TEXT NOT NULL, 
	error TEXT, 
	created DATETIME NOT NULL, 
	features TEXT, 
	feature_version TEXT, 
	comparable VARCHAR(32) NOT NULL, 
	verified BOOLEAN NOT NULL, resources TEXT, predicted DOUBLE, elapsed DOUBLE, trial BOOLEAN, 
	CONSTRAINT pk_measurement PRIMARY KEY (id), 
	CONSTRAINT fk_measurement_session FOREIGN KEY(session) REFERENCES session (id), 
	CONSTRAINT fk_measurement_schedule FOREIGN KEY(schedule) REFERENCES schedule (id), 
	CONSTRAINT fk_measurement_workload FOREIGN KEY(workload) REFERENCES workload (id), 
	CONSTRAINT fk_measurement_target FOREIGN KEY(target) REFERENCES target (id), 
	CONSTRAINT fk_measurement_toolchain FOREIGN KEY(toolchain) REFERENCES toolchain (id), 
	CONSTRAINT fk_measurement_environment FOREIGN KEY(environment) REFERENCES environment (id)
);
INSERT INTO "measurement" VALUES('e1ce6a259bd8eb2a101e75a0dd8a61cc6f9847ed7e2d15eb1778c11c17ff49a3','0d337aefd6b4bbdcb764df9164264c22e28ea6863a38a8cc2801452bd5252098','4890c9ad4220435065a13f0a4800a466e2515f22699cdf82f04f8b293091f864','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87','f9de4f1275ba5d8175ebab088ab137e90bcaa2bb113d4d1f285920a6bdaebf78','7da10b4a43f854b32b3aa0deb5f2fb0598ed31df41304a9980d30c390de48019','ok',0.125,'[0.125,0.1875,0.0625]',NULL,'2026-03-01 12:00:00.123456',NULL,NULL,'4c24556262b68fa279f0e50652ecb5aa',1,NULL,NULL,NULL,NULL);
CREATE TABLE pin (
	id VARCHAR(64) NOT NULL, 
	workload VARCHAR(64) NOT NULL, 
	target VARCHAR(64) NOT NULL, 
	schedule VARCHAR(64) NOT NULL, 
	created DATETIME NOT NULL, 
	CONSTRAINT pk_pin PRIMARY KEY (id), 
	CONSTRAINT fk_pin_workload FOREIGN KEY(workload) REFERENCES workload (id), 
	CONSTRAINT fk_pin_target FOREIGN KEY(target) REFERENCES target (id), 
	CONSTRAINT fk_pin_schedule FOREIGN KEY(schedule) REFERENCES schedule (id)
);
INSERT INTO "pin" VALUES('8b3210fd5d6f47c0eb97e3c7d87a22b2853d43d37748d13a2883db064bc81aa5','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87','4890c9ad4220435065a13f0a4800a466e2515f22699cdf82f04f8b293091f864','2026-03-01 12:00:00.123456');
CREATE TABLE schedule (
	id VARCHAR(64) NOT NULL, 
	trace TEXT NOT NULL, 
	trace_version BIGINT NOT NULL, 
	generator TEXT NOT NULL, inexact TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_schedule PRIMARY KEY (id)
);
INSERT INTO "schedule" VALUES('4890c9ad4220435065a13f0a4800a466e2515f22699cdf82f04f8b293091f864','[{"step": "split", "factor": 8}]',1,'tiling/random','');
CREATE TABLE session (
	id VARCHAR(64) NOT NULL, 
	workload VARCHAR(64) NOT NULL, 
	target VARCHAR(64) NOT NULL, 
	trials BIGINT, 
	seconds DOUBLE, 
	seed BIGINT NOT NULL, 
	search TEXT NOT NULL, 
	model TEXT NOT NULL, 
	started DATETIME NOT NULL, 
	nonce TEXT NOT NULL, 
	status VARCHAR(20) NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	ended DATETIME, 
	host TEXT NOT NULL, 
	pid BIGINT NOT NULL, noise TEXT, elapsed DOUBLE, drift DOUBLE, untuned TEXT, 
	CONSTRAINT pk_session PRIMARY KEY (id), 
	CONSTRAINT fk_session_workload FOREIGN KEY(workload) REFERENCES workload (id), 
	CONSTRAINT fk_session_target FOREIGN KEY(target) REFERENCES target (id)
);
INSERT INTO "session" VALUES('0d337aefd6b4bbdcb764df9164264c22e28ea6863a38a8cc2801452bd5252098','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87',64,NULL,7,'{"mutation":0.5,"population":512}','{"trees":100}','2026-03-01 12:00:00.123456','0123','running','2026-03-01 12:00:00.123456',NULL,'elsewhere',4711,NULL,NULL,NULL,NULL);
CREATE TABLE target (
	id VARCHAR(64) NOT NULL, 
	text TEXT NOT NULL, 
	compat TEXT NOT NULL, 
	perf TEXT NOT NULL, 
	facts TEXT NOT NULL, 
	comparable VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_target PRIMARY KEY (id)
);
INSERT INTO "target" VALUES('212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87','cpu -threads=2','x86_64 avx512f','Xeon, 2 threads','{"l2":1048576}','4c24556262b68fa279f0e50652ecb5aa');
CREATE TABLE toolchain (
	id VARCHAR(64) NOT NULL, 
	generation TEXT NOT NULL, 
	versions TEXT NOT NULL, 
	CONSTRAINT pk_toolchain PRIMARY KEY (id)
);
INSERT INTO "toolchain" VALUES('f9de4f1275ba5d8175ebab088ab137e90bcaa2bb113d4d1f285920a6bdaebf78','llvm 22','{"llvmlite":"0.50.0"}');
CREATE TABLE tuning_db_revision (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tuning_db_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tuning_db_revision" VALUES('0011');
CREATE TABLE verification (
	id VARCHAR(64) NOT NULL, 
	workload VARCHAR(64) NOT NULL, 
	target VARCHAR(64) NOT NULL, 
	schedule VARCHAR(64) NOT NULL, 
	toolchain VARCHAR(64) NOT NULL, 
	passed BOOLEAN NOT NULL, 
	max_error DOUBLE, 
	tolerance DOUBLE NOT NULL, 
	created DATETIME NOT NULL, 
	CONSTRAINT pk_verification PRIMARY KEY (id), 
	CONSTRAINT fk_verification_workload FOREIGN KEY(workload) REFERENCES workload (id), 
	CONSTRAINT fk_verification_target FOREIGN KEY(target) REFERENCES target (id), 
	CONSTRAINT fk_verification_schedule FOREIGN KEY(schedule) REFERENCES schedule (id), 
	CONSTRAINT fk_verification_toolchain FOREIGN KEY(toolchain) REFERENCES toolchain (id)
);
INSERT INTO "verification" VALUES('89c129451b0979171c0b89dadf074c3044519350d82585e593ddaff845ed134a','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','212b750fb119d2aec06ca58b718ea6186fa3960a9b8c5f8f0c1c5b0ca5a98c87','4890c9ad4220435065a13f0a4800a466e2515f22699cdf82f04f8b293091f864','f9de4f1275ba5d8175ebab088ab137e90bcaa2bb113d4d1f285920a6bdaebf78',1,1.0e-06,0.0001,'2026-03-01 12:00:00.123456');
CREATE TABLE workload (
	id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	ir TEXT NOT NULL, 
	shape TEXT NOT NULL, 
	flops BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, family VARCHAR(64) DEFAULT '' NOT NULL, 
	CONSTRAINT pk_workload PRIMARY KEY (id)
);
INSERT INTO "workload" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','matmul','def matmul(): ...','A[64,64] B[64,64]',524288,49152,'');
CREATE INDEX ix_workload_name ON workload (name);
CREATE INDEX ix_target_comparable ON target (comparable);
CREATE INDEX ix_session_workload_target ON session (workload, target);
CREATE INDEX ix_verification_workload_schedule ON verification (workload, schedule);
CREATE INDEX ix_measurement_best ON measurement (workload, comparable, outcome, verified, seconds);
CREATE INDEX ix_measurement_schedule_workload ON measurement (schedule, workload);
CREATE INDEX ix_measurement_created ON measurement (created);
CREATE INDEX ix_pin_workload ON pin (workload);
CREATE INDEX ix_workload_family ON workload (family);
CREATE INDEX ix_machine_target_created ON machine (target, created);
CREATE INDEX ix_measurement_session_created ON measurement (session, created);
CREATE VIEW trials AS
SELECT
    m.id, m.created, w.name AS workload, w.shape, t.text AS target, c.generation AS compiler,
    m.outcome, m.seconds, NULLIF(w.flops, 0) / NULLIF(m.seconds, 0) / 1e9 AS gflops,
    m.predicted, m.verified, m.elapsed,
    EXISTS (
        SELECT 1 FROM measurement AS later
        WHERE later.workload = m.workload AND later.schedule = m.schedule
            AND later.comparable = m.comparable AND later.toolchain = m.toolchain
            AND (later.created > m.created OR later.created = m.created AND later.id > m.id)
    ) AS superseded,
    s.generator AS rules, s.inexact, m.error, m.schedule, m.session, m.workload AS workload_id,
    m.target AS target_id
FROM measurement AS m
JOIN workload AS w ON w.id = m.workload
JOIN target AS t ON t.id = m.target
JOIN toolchain AS c ON c.id = m.toolchain
JOIN schedule AS s ON s.id = m.schedule;
CREATE VIEW sessions AS
SELECT
    s.id, s.started, s.ended, s.status, w.name AS workload, w.shape, t.text AS target,
    s.trials AS budget_trials, s.seconds AS budget_seconds, COALESCE(s.elapsed, round((julianday(s.heartbeat) - julianday(s.started)) * 86400, 3)) AS elapsed,
    CASE WHEN count(DISTINCT m.trial) > s.trials THEN s.trials ELSE count(DISTINCT m.trial) END
        AS trials,
    count(m.id) AS measurements,
    count(CASE WHEN m.outcome <> 'ok' THEN 1 END) AS failures,
    min(CASE WHEN m.outcome = 'ok' THEN m.seconds END) AS fastest, s.noise, s.host,
    s.workload AS workload_id, s.target AS target_id
FROM session AS s
JOIN workload AS w ON w.id = s.workload
JOIN target AS t ON t.id = s.target
LEFT JOIN (
    SELECT
        id, session, outcome, seconds,
        -- as `tally.Trials` has it: of older versions, all but finals
        CASE
            WHEN trial OR trial IS NULL AND (
                outcome <> 'ok' OR count(CASE WHEN outcome = 'ok' THEN 1 END) OVER (
                    PARTITION BY session, workload, target, toolchain, created
                ) = 1
            ) THEN schedule
        END AS trial
    FROM measurement
) AS m ON m.session = s.id
GROUP BY s.id, w.id, t.id;
CREATE VIEW best AS
WITH choice AS (
    SELECT p.workload, p.schedule, t.comparable, row_number() OVER (
        PARTITION BY p.workload, t.comparable ORDER BY p.created DESC, p.id
    ) AS place
    FROM pin AS p JOIN target AS t ON t.id = p.target
),
valid AS (
    SELECT
        m.id, m.created, m.session, m.workload, m.target, m.toolchain, m.schedule, m.comparable,
        m.seconds, s.generator, s.inexact, c.generation, p.schedule AS pinned,
        length(m.samples) - length(replace(m.samples, ',', '')) AS rounds,
        EXISTS (
            SELECT 1 FROM measurement AS later
            WHERE later.workload = m.workload AND later.schedule = m.schedule
                AND later.comparable = m.comparable AND later.toolchain = m.toolchain
                AND (later.created > m.created OR later.created = m.created AND later.id > m.id)
        ) AS superseded
    FROM measurement AS m
    JOIN schedule AS s ON s.id = m.schedule
    JOIN toolchain AS c ON c.id = m.toolchain
    LEFT JOIN choice AS p
        ON p.workload = m.workload AND p.comparable = m.comparable AND p.place = 1
    WHERE m.outcome = 'ok' AND m.verified AND m.seconds BETWEEN 1e-12 AND 1000000000.0
),
finals AS (
    SELECT v.session, v.workload, v.target, v.toolchain, v.created
    FROM valid AS v
    WHERE v.inexact = ''
    GROUP BY v.session, v.workload, v.target, v.toolchain, v.created
    HAVING count(*) > 1
),
usable AS (
    SELECT v.* FROM valid AS v WHERE NOT v.superseded
),
compared AS (
    SELECT u.*, max(u.rounds) OVER (
        PARTITION BY u.session, u.workload, u.target, u.toolchain, u.created, u.inexact = ''
    ) AS most
    FROM usable AS u
),
ranked AS (
    SELECT u.*, row_number() OVER (
        PARTITION BY u.workload, u.comparable, u.generation ORDER BY u.seconds, u.id
    ) AS place
    FROM compared AS u
    WHERE u.schedule = u.pinned
        OR u.pinned IS NULL AND u.inexact = '' AND u.rounds = u.most AND NOT EXISTS (
            SELECT 1 FROM finals AS f
            WHERE f.session = u.session AND f.workload = u.workload AND f.target = u.target
                AND f.toolchain = u.toolchain AND f.created > u.created
        )
)
SELECT
    r.id, r.created, w.name AS workload, w.shape, t.text AS target, r.generation AS compiler,
    r.seconds, NULLIF(w.flops, 0) / r.seconds / 1e9 AS gflops, r.pinned IS NOT NULL AS pinned,
    r.generator AS rules, r.inexact, r.schedule, r.session, r.workload AS workload_id,
    r.target AS target_id
FROM ranked AS r
JOIN workload AS w ON w.id = r.workload
JOIN target AS t ON t.id = r.target
WHERE r.place = 1;
COMMIT;
